"""Test that an append waits only for its locks and its client, and a barrier for all before it.

The tests run random histories, and check rules that hold for any implementation of the queue.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field

from hypothesis import given, settings
from hypothesis import strategies as st

from tests.support.replication_world import append
from waltz.protocol import ReqId
from waltz.protocol import client_server as cs
from waltz.protocol.batches import BatchedOutcome, OutcomeKind
from waltz_server.core.appends.append import Append
from waltz_server.core.appends.append_queue import AppendQueue
from waltz_server.core.appends.barrier import Barrier
from waltz_server.core.appends.lock_table import LockTable
from waltz_server.core.peer import Peer

SIZE = 30_000
LOCKS = (1, 2, 3, 4)
START = 10
PEERS = {client: Peer(4) for client in (1, 2, 3)}


def test_locks_used_by_these_tests_share_no_slot() -> None:
    table = LockTable(SIZE, 0)
    assert len({slot for slots in table.slots(LOCKS) for slot in slots}) == 3 * len(LOCKS)


_SOME_LOCKS = st.sets(st.sampled_from(LOCKS), max_size=2).map(lambda s: tuple(sorted(s)))
_ADD = st.tuples(
    st.just("add"),
    st.sampled_from(sorted(PEERS)),
    _SOME_LOCKS,
    _SOME_LOCKS,
    _SOME_LOCKS,
    st.sampled_from((0, 0, 0, 1, 8)),
)
_STEPS = st.lists(
    st.one_of(
        _ADD,
        _ADD,
        st.tuples(st.just("barrier"), st.sampled_from(sorted(PEERS))),
        st.tuples(st.just("take")),
        st.tuples(st.just("commit"), st.integers(1, 4)),
        st.tuples(st.just("fail"), st.integers(1, 4)),
        st.tuples(st.just("forget"), st.sampled_from(sorted(PEERS))),
        st.tuples(st.just("begin_generation")),
        st.tuples(st.just("open")),
    ),
    max_size=40,
)


def _locks(a: Append) -> set[int]:
    return {*a.write_locks, *a.read_locks, *a.append_locks}


@dataclass
class History:
    """A queue, and the outcome of each append and barrier."""

    queue: AppendQueue = field(default_factory=lambda: AppendQueue(SIZE))
    generation: int = 1
    opened: bool = False
    mark: int = START
    undecided: list[Append] = field(default_factory=list)
    submitted: list[Append] = field(default_factory=list)
    barriers: list[tuple[Barrier, list[Append]]] = field(default_factory=list)
    last_taken: Counter[int] = field(default_factory=Counter)

    @property
    def open(self) -> list[Append]:
        return self.undecided + self.submitted

    def add(
        self,
        client: int,
        write: tuple[int, ...],
        read: tuple[int, ...],
        lock_only: tuple[int, ...],
        behind: int,
    ) -> None:
        mark = self.mark - behind
        new = append(
            "x" * client,
            client=client,
            generation=self.generation,
            mark=mark,
            write=write,
            read=read,
            lock_only=lock_only,
        )
        self.undecided.append(new)
        self.queue.add(PEERS[client], [new])

    def barrier(self, client: int) -> None:
        new = Barrier(PEERS[client], cs.FlushRequest(ReqId(client, 1, 0, 0)))
        self.barriers.append((new, list(self.open)))
        self.queue.add_barrier(new)

    def forget(self, client: int) -> None:
        self.barriers = [b for b in self.barriers if b[0].peer is not PEERS[client]]
        self.queue.forget(PEERS[client])

    def take(self) -> None:
        before = list(self.undecided)
        granted, refused = self.queue.decide(self.mark)
        for _, each, outcome in refused:
            latest = outcome.transaction_id
            expected = max(self.last_taken[lock] for lock in (*each.write_locks, *each.read_locks))
            assert latest == max(expected, START) > each.client_mark
        gone = {id(a) for a in granted} | {id(a) for _, a, _ in refused}
        self.undecided = [a for a in before if id(a) not in gone]
        assert len(before) == len(self.undecided) + len(gone), "nothing lost, nothing made up"
        for peer, each, _ in refused:
            assert peer is PEERS[each.client_id]
        for each in granted:
            self._check_granted(each)
            self.submitted.append(each)
        self._check_order(before, gone)
        if self.opened:
            self._check_reasons()

    def resolve(self, count: int, *, commit: bool) -> None:
        done, self.submitted = self.submitted[:count], self.submitted[count:]
        if not done:
            return
        if commit:
            for each in done:
                self.mark += 1
                self.last_taken.update(
                    {
                        x: self.mark - self.last_taken[x]
                        for x in {*each.write_locks, *each.append_locks}
                    }
                )
        self.queue.resolved(done, self.mark - len(done) + 1 if commit else None)

    def begin_generation(self) -> None:
        self.generation += 1
        self.undecided.clear()
        self.queue.drop_ungranted()

    def start(self) -> None:
        self.opened = True
        self.queue.open(START)

    def check(self) -> None:
        assert self.queue.open_count == len(self.open)
        assert self.queue.open_bytes == sum(len(a.record_tail) for a in self.open)
        passed = self.queue.take_passed_barriers()
        unresolved = {id(a) for a in self.open}
        due = [b for b, before in self.barriers if not unresolved & {id(a) for a in before}]
        assert all(any(p is d for d in due) for p in passed), "a barrier before its appends"
        self.barriers = [b for b in self.barriers if not any(b[0] is p for p in passed)]

    def _check_granted(self, each: Append) -> None:
        held = {x for a in self.submitted for x in (*a.write_locks, *a.append_locks)}
        assert not held & _locks(each), "two open appends under one lock"
        checked = {*each.write_locks, *each.read_locks}
        assert all(max(self.last_taken[x], START) <= each.client_mark for x in checked)

    def _check_order(self, before: list[Append], gone: set[int]) -> None:
        clients: set[int] = set()
        wanted: set[int] = set()
        for each in before:
            if id(each) in gone:
                assert each.client_id not in clients, "appends of one client were reordered"
                assert not _locks(each) & wanted, "a later append got a lock first"
            else:
                clients.add(each.client_id)
                wanted |= _locks(each)
        for client in PEERS:
            order = [id(a) for a in before if a.client_id == client]
            mine = [id(a) for a in self.submitted if a.client_id == client and id(a) in order]
            assert mine == [a for a in order if a in mine]

    def _check_reasons(self) -> None:
        """Every waiter waits for a lock that is held, or behind another waiter."""
        held = {x for a in self.submitted for x in (*a.write_locks, *a.append_locks)}
        clients: set[int] = set()
        wanted: set[int] = set()
        for each in self.undecided:
            assert _locks(each) & (held | wanted) or each.client_id in clients, (
                "an append waits for nothing"
            )
            clients.add(each.client_id)
            wanted |= _locks(each)


@given(_STEPS)
@settings(max_examples=400)
def test_any_history_keeps_order_and_locks_exclusive(steps: list[tuple[object, ...]]) -> None:
    history = History()
    for name, *arguments in steps:
        match name, arguments:
            case "commit", [int(count)]:
                history.resolve(count, commit=True)
            case "fail", [int(count)]:
                history.resolve(count, commit=False)
            case "open", _:
                history.start()
            case _:
                getattr(history, str(name))(*arguments)
        history.check()
    history.start()
    while history.open:
        history.take()
        history.check()
        history.resolve(1, commit=True)
    history.take()
    history.check()
    assert history.barriers == [], "a barrier was forgotten"
    assert (history.queue.open_count, history.queue.open_bytes) == (0, 0)


def test_barriers_behind_waiting_appends_keep_their_order() -> None:
    queue = AppendQueue(SIZE)
    queue.open(0)
    peer = Peer(4)
    first, second = append("1", write=(1,), mark=0), append("2", client=2, write=(1,), mark=0)
    barriers = [Barrier(peer, cs.FlushRequest(ReqId(1, 1, 0, n))) for n in range(3)]
    queue.add_barrier(barriers[0])
    queue.add(peer, [first])
    queue.add_barrier(barriers[1])
    queue.add(peer, [second])
    queue.add_barrier(barriers[2])
    assert queue.decide(0) == ([first], [])
    assert queue.take_passed_barriers() == [barriers[0]]
    queue.resolved([first], 1)
    assert queue.take_passed_barriers() == [barriers[1]]
    assert queue.decide(1) == ([], [(peer, second, BatchedOutcome(OutcomeKind.REFUSED, 1))])
    assert queue.take_passed_barriers() == [barriers[2]]


def test_unlocked_appends_of_other_clients_pass_a_waiting_append() -> None:
    queue = AppendQueue(SIZE)
    queue.open(0)
    peer = Peer(4)
    holder = append("holder", client=1, write=(1,), mark=0)
    waiter = append("waiter", client=2, write=(1,), mark=0)
    mine = append("mine", client=2, mark=0)
    other = append("other", client=3, mark=0)
    for each in (holder, waiter, mine, other):
        queue.add(peer, [each])
    assert queue.decide(0) == ([holder, other], [])
    queue.resolved([holder, other], None)
    assert queue.decide(0) == ([waiter, mine], [])


def test_free_lock_is_reserved_for_the_first_waiter() -> None:
    queue = AppendQueue(SIZE)
    queue.open(0)
    peer = Peer(4)
    holder = append("holder", client=1, write=(1,), mark=0)
    first = append("first", client=2, write=(1, 2), mark=9)
    later = append("later", client=3, write=(2,), mark=9)
    for each in (holder, first, later):
        queue.add(peer, [each])
    assert queue.decide(0) == ([holder], [])
    queue.resolved([holder], 1)
    assert queue.decide(0) == ([first], [])
    queue.resolved([first], 2)
    assert queue.decide(0) == ([later], [])


def test_stale_waiters_do_not_block_a_new_generation() -> None:
    queue = AppendQueue(SIZE)
    queue.open(0)
    peer = Peer(4)
    holder = append("holder", client=1, write=(1,), mark=0)
    queue.add(peer, [holder])
    queue.add(peer, [append("old", client=2, write=(1, 2), mark=0)])
    assert queue.decide(0) == ([holder], [])
    queue.drop_ungranted()
    waiter = append("waiter", client=3, write=(1,), mark=0, generation=2)
    free = [
        append("free", client=2, mark=0, generation=2),
        append("free", client=4, write=(2,), mark=0, generation=2),
    ]
    for each in (waiter, *free):
        queue.add(peer, [each])
    assert queue.decide(0) == (free, [])
    queue.resolved([holder], None)
    assert queue.decide(0) == ([waiter], [])


def test_closed_connection_gets_no_answer_to_its_barriers_and_keeps_its_appends() -> None:
    """Its barriers are forgotten: those that are placed, behind a waiter, or not yet taken."""
    queue = AppendQueue(SIZE)
    queue.open(0)
    gone, stays = Peer(4), Peer(4)
    numbers = iter(range(9))

    def barriers() -> Barrier:
        for peer in (gone, stays):
            queue.add_barrier(Barrier(peer, cs.FlushRequest(ReqId(1, 1, 0, next(numbers)))))
        return Barrier(stays, cs.FlushRequest(ReqId(1, 1, 0, next(numbers) - 1)))

    first = append("1", write=(1,), mark=0)
    second = append("2", client=2, write=(1,), mark=9)
    third = append("3", client=3, mark=0)
    queue.add(gone, [first])
    placed = barriers()
    queue.add(gone, [second])
    behind = barriers()
    assert queue.decide(0) == ([first], [])
    queue.add(gone, [third])
    arrived = barriers()
    queue.forget(gone)
    assert queue.decide(0) == ([third], [])
    queue.resolved([first, third], 1)
    assert queue.take_passed_barriers() == [placed]
    assert queue.decide(2) == ([second], []), "the append of the closed connection stays"
    queue.resolved([second], 3)
    assert queue.take_passed_barriers() == [behind, arrived]
