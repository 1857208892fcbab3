"""Random histories of batches and single appends, checked against the resulting log.

The log alone must explain every outcome. If an append is committed, no other append took one of its
locks after its mark. If an append is refused, another append did. Every append has one outcome.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from hypothesis import given, settings
from hypothesis import strategies as st

from tests.support.partition_world import NAMES, mount, opened, put, take_messages
from tests.support.replication_world import append
from waltz.protocol import ReqId
from waltz.protocol import client_server as cs
from waltz.protocol.batches import BatchedOutcome, OutcomeKind
from waltz_server.core.appends.append import Append
from waltz_server.core.appends.append_batches import AppendBatch
from waltz_server.core.effects import BackoffOver, RetrySession
from waltz_server.core.peer import Peer

CLIENTS = (1, 2, 3)
_LOCKS = st.lists(st.sampled_from((1, 2, 3)), max_size=2, unique=True).map(tuple)
_BEHIND = st.sampled_from((0, 0, 1, 3))
_SHAPE = st.tuples(_LOCKS, _LOCKS, _LOCKS)
_CLIENT = st.sampled_from(CLIENTS)
_STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("batch"), _CLIENT, _BEHIND, st.lists(_SHAPE, min_size=1, max_size=4)),
        st.tuples(st.just("batch"), _CLIENT, _BEHIND, st.lists(_SHAPE, min_size=1, max_size=4)),
        st.tuples(st.just("single"), _CLIENT, _BEHIND, _SHAPE),
        st.tuples(st.just("hold"), st.sampled_from(NAMES)),
        st.tuples(st.just("release"), st.sampled_from(NAMES)),
        st.tuples(st.just("let_one"), st.sampled_from(NAMES)),
        st.tuples(st.just("cut"), st.sampled_from(NAMES)),
        st.tuples(st.just("generation")),
    ),
    max_size=25,
)


@dataclass(frozen=True)
class Requested:
    """A batch, or a single append as a batch of one whose answer does not come back as one."""

    number: int
    peer: Peer
    generation: int
    appends: list[Append]
    single: bool = False


@dataclass
class History:
    """A partition, its clients, and their requests."""

    requested: list[Requested] = field(default_factory=list)
    generation: int = 1
    changed: bool = False
    mark: int = -1
    """The last mark that the partition has reported: it reports none at the beginning of a
    generation."""

    def __post_init__(self) -> None:
        self.world = opened()
        self.peers = {client: Peer(5) for client in CLIENTS}
        self.mount()
        self.answers: dict[int, list[tuple[BatchedOutcome, ...]]] = {}

    def mount(self) -> None:
        for client, peer in self.peers.items():
            mount(self.world, client, -1, generation=self.generation, peer=peer)

    def batch(
        self,
        client: int,
        behind: int,
        shapes: list[tuple[tuple[int, ...], tuple[int, ...], tuple[int, ...]]],
    ) -> None:
        new = self._request(client, behind, shapes, single=False)
        req_id = ReqId(client, self.generation, 0, new.number)
        self.world.core.append_batch(AppendBatch(new.peer, req_id, new.appends))
        self.world.settle()

    def single(
        self,
        client: int,
        behind: int,
        shape: tuple[tuple[int, ...], tuple[int, ...], tuple[int, ...]],
    ) -> None:
        new = self._request(client, behind, [shape], single=True)
        put(self.world, new.peer, *new.appends)

    def hold(self, name: str) -> None:
        self.world.hold(name)

    def release(self, name: str) -> None:
        self.world.release(name)

    def let_one(self, name: str) -> None:
        if self.world.waiting(name):
            self.world.let_one(name)

    def cut(self, name: str) -> None:
        self.world.cut(name)
        self.world.connect(name)

    def generation_(self) -> None:
        self.generation += 1
        self.changed = True
        self.world.core.set_generation(self.generation)
        self.world.settle()
        self.mount()

    def finish(self) -> None:
        world = self.world
        world.release(*NAMES)
        world.connect()
        for _ in range(200):
            if world.core.store.is_open and not world.core.open_appends:
                break
            world.wake(
                next(
                    type(w.timer)
                    for w in world.wakes
                    if isinstance(w.timer, RetrySession | BackoffOver)
                )
            )
        for peer in self.peers.values():
            for message in take_messages(world, peer):
                if isinstance(message, cs.AppendBatchResponse):
                    self.answers.setdefault(message.req_id.seq, []).append(message.outcomes)

    def _request(
        self,
        client: int,
        behind: int,
        shapes: list[tuple[tuple[int, ...], tuple[int, ...], tuple[int, ...]]],
        *,
        single: bool,
    ) -> Requested:
        number = len(self.requested)
        reported = self.world.core.high_water_mark
        self.mark = self.mark if reported is None else reported
        mark = max(-1, self.mark - behind)
        appends = [
            append(
                f"{number}.{i}",
                client=client,
                generation=self.generation,
                seq=number,
                mark=mark,
                write=write,
                read=read,
                lock_only=lock_only,
            )
            for i, (write, read, lock_only) in enumerate(shapes)
        ]
        new = Requested(number, self.peers[client], self.generation, appends, single)
        self.requested.append(new)
        return new


def check(history: History) -> None:
    world = history.world
    active = min(world.active)
    log = world.storages[active].texts[: world.core.high_water_mark + 1]
    assert len(set(log)) == len(log), "something is in the log twice"
    where = {text: transaction_id for transaction_id, text in enumerate(log)}
    by_text = {
        f"{a.number}.{i}": (a, x) for a in history.requested for i, x in enumerate(a.appends)
    }
    takers = [(by_text[text][0], by_text[text][1]) for text in log]
    for client in CLIENTS:
        order = [requested.number for requested, each in takers if each.client_id == client]
        assert order == sorted(order), "appends of one client were reordered"
    for requested in history.requested:
        for i, each in enumerate(requested.appends):
            at = where.get(f"{requested.number}.{i}")
            if at is not None and not history.changed:
                rivals = _rivals(takers, requested, each, at)
                assert rivals == [], f"{requested.number}.{i} did not see {rivals}"
        if not requested.single:
            (outcomes,) = history.answers[requested.number]
            assert len(outcomes) == len(requested.appends)
            _check_outcomes(history, takers, requested, outcomes, where)


def _rivals(
    takers: list[tuple[Requested, Append]], requested: Requested, each: Append, at: int
) -> list[int]:
    """Transactions of others before ``at`` that took a lock behind the client's mark."""
    checked = {*each.write_locks, *each.read_locks}
    return [
        t
        for t in range(max(0, each.client_mark + 1), at)
        if takers[t][0] is not requested
        and checked & {*takers[t][1].write_locks, *takers[t][1].append_locks}
    ]


def _check_outcomes(
    history: History,
    takers: list[tuple[Requested, Append]],
    requested: Requested,
    outcomes: tuple[BatchedOutcome, ...],
    where: dict[str, int],
) -> None:
    ids = []
    for i, (each, outcome) in enumerate(zip(requested.appends, outcomes, strict=True)):
        at = where.get(f"{requested.number}.{i}")
        match outcome.kind:
            case OutcomeKind.COMMITTED:
                assert outcome.transaction_id == at
                ids.append(outcome.transaction_id)
            case OutcomeKind.REFUSED:
                assert at is None
                assert outcome.transaction_id > each.client_mark
                if not history.changed:
                    taker, taken = takers[outcome.transaction_id]
                    assert taker is not requested, "refused by its own batch"
                    locks = {*taken.write_locks, *taken.append_locks}
                    assert locks & {*each.write_locks, *each.read_locks}, "refused for nothing"
            case OutcomeKind.ABSENT:
                assert at is None
            case OutcomeKind.UNKNOWN:
                assert history.changed, "only another writer makes outcomes unknown"
    assert ids == list(range(ids[0], ids[0] + len(ids))) if ids else True, "not consecutive"


@given(_STEPS)
@settings(max_examples=300)
def test_every_batch_outcome_agrees_with_the_log(steps: list[tuple[object, ...]]) -> None:
    history = History()
    for name, *arguments in steps:
        getattr(history, "generation_" if name == "generation" else str(name))(*arguments)
    history.finish()
    check(history)
