"""Test that lock queues decide as one pass over all waiters would."""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, field

from hypothesis import given, settings
from hypothesis import strategies as st

from tests.support.replication_world import append
from waltz.protocol import ReqId
from waltz.protocol import client_server as cs
from waltz_server.core.appends.append import Append
from waltz_server.core.appends.append_batches import AppendBatch
from waltz_server.core.appends.append_queue import AppendQueue
from waltz_server.core.appends.barrier import Barrier
from waltz_server.core.appends.lock_queues import LockQueues
from waltz_server.core.appends.lock_table import LockTable
from waltz_server.core.peer import Peer

START = 10
PEER = Peer(5)
Item = AppendBatch | Barrier


def _locks(item: AppendBatch) -> set[int]:
    return {lock for a in item.appends for lock in (*a.write_locks, *a.read_locks, *a.append_locks)}


@dataclass
class Passes:
    """The reference: one pass over all waiters each time; a single append is a batch of one."""

    table: LockTable
    items: list[Item] = field(default_factory=list)
    submitted: int = 0
    placed: deque[tuple[int, Barrier]] = field(default_factory=deque)

    def take(self) -> tuple[list[Append], list[tuple[Append, int]]]:
        granted: list[Append] = []
        refused: list[tuple[Append, int]] = []
        waiting: list[Item] = []
        clients: set[int] = set()
        wanted: set[int] = set()
        for item in self.items:
            if isinstance(item, Barrier):
                if waiting:
                    waiting.append(item)
                else:
                    self.placed.append((self.submitted + len(granted), item))
                continue
            client = item.appends[0].client_id
            must_wait = client in clients or bool(_locks(item) & wanted)
            if must_wait or not self._try(item.appends, granted, refused):
                waiting.append(item)
                clients.add(client)
                wanted |= _locks(item)
        self.items = waiting
        self.submitted += len(granted)
        return granted, refused

    def begin_generation(self) -> None:
        self.items = [item for item in self.items if isinstance(item, Barrier)]

    def resolved(self, appends: list[Append], first_id: int | None) -> None:
        for position, each in enumerate(appends):
            taken = self.table.slots(each.write_locks + each.append_locks)
            self.table.release(taken, None if first_id is None else first_id + position)

    def _try(
        self, appends: Sequence[Append], granted: list[Append], refused: list[tuple[Append, int]]
    ) -> bool:
        table = self.table
        if any(
            table.any_busy(table.slots(a.write_locks + a.append_locks + a.read_locks))
            for a in appends
        ):
            return False
        mine = []
        for each in appends:
            latest = table.last_taken(table.slots(each.write_locks + each.read_locks))
            if latest > each.client_mark:
                refused.append((each, latest))
            else:
                mine.append(each)
        for each in mine:
            table.hold(table.slots(each.write_locks + each.append_locks))
        granted += mine
        return True


_SOME = st.lists(st.sampled_from((1, 2, 3, 4, 5)), max_size=2, unique=True).map(tuple)
_SHAPE = st.tuples(_SOME, _SOME, _SOME, st.sampled_from((0, 0, 0, 1, 8)))
_ADD = st.tuples(
    st.just("add"), st.sampled_from((1, 2, 3, 4)), st.lists(_SHAPE, min_size=1, max_size=3)
)
_STEPS = st.lists(
    st.one_of(
        _ADD,
        _ADD,
        st.tuples(st.just("barrier")),
        st.tuples(st.just("take")),
        st.tuples(st.just("commit"), st.integers(1, 4)),
        st.tuples(st.just("fail"), st.integers(1, 4)),
        st.tuples(st.just("begin_generation")),
    ),
    max_size=60,
)


@dataclass
class Both:
    """The queue and the reference, with the same inputs."""

    size: int
    generation: int = 1
    mark: int = START
    open: list[Append] = field(default_factory=list)
    resolved: int = 0

    def __post_init__(self) -> None:
        self.queue = AppendQueue(self.size)
        self.queue.open(START)
        self.passes = Passes(LockTable(self.size, START))

    def add(self, client: int, shapes: list[tuple[tuple[int, ...], ...]]) -> None:
        appends = [
            append(
                "x",
                client=client,
                generation=self.generation,
                mark=self.mark - int(str(behind)),
                write=write,
                read=read,
                lock_only=lock_only,
            )
            for write, read, lock_only, behind in shapes
        ]
        batch = AppendBatch(PEER, ReqId(client, 1, 0, 0), appends)
        self.passes.items.append(batch)
        if len(appends) == 1:
            self.queue.add(PEER, appends)
        else:
            self.queue.add_batch(batch)

    def barrier(self) -> None:
        new = Barrier(PEER, cs.FlushRequest(ReqId(1, 1, 0, 0)))
        self.queue.add_barrier(new)
        self.passes.items.append(new)

    def take(self) -> None:
        granted, refused = self.queue.decide(self.mark)
        found = [(append, outcome.transaction_id) for _, append, outcome in refused]
        assert (granted, found) == self.passes.take()
        self.open += granted
        due = []
        while self.passes.placed and self.passes.placed[0][0] <= self.resolved:
            due.append(self.passes.placed.popleft()[1])
        assert self.queue.take_passed_barriers() == due

    def resolve(self, count: int, *, commit: bool) -> None:
        done, self.open = self.open[:count], self.open[count:]
        if done:
            first_id = self.mark + 1 if commit else None
            self.mark += len(done) if commit else 0
            self.resolved += len(done)
            self.queue.resolved(done, first_id)
            self.passes.resolved(done, first_id)

    def begin_generation(self) -> None:
        self.generation += 1
        self.queue.drop_ungranted()
        self.passes.begin_generation()


@given(_STEPS, st.sampled_from((5, 11, 30_000)))
@settings(max_examples=600)
def test_lock_queues_decide_as_repeated_passes_over_all_waiters(
    steps: list[tuple[object, ...]], size: int
) -> None:
    both = Both(size)
    for name, *arguments in steps:
        match name, arguments:
            case "commit", [int(count)]:
                both.resolve(count, commit=True)
            case "fail", [int(count)]:
                both.resolve(count, commit=False)
            case _:
                getattr(both, str(name))(*arguments)
    while True:
        both.take()
        if not both.open:
            break
        both.resolve(1, commit=True)
    assert both.passes.items == []
    assert both.queue.open_count == 0


def test_released_lock_makes_one_waiter_due() -> None:
    lines: LockQueues[str] = LockQueues()
    slots = {lock: LockTable(30_000, 0).slots((lock,))[0] for lock in (1, 2)}
    hot = [lines.add(n, f"hot {n}", client=n, locks=(1,)) for n in range(1000)]
    cold = lines.add(1000, "cold", client=1000, locks=(2,))
    lines.park(hot[0], slots[1])
    lines.park(cold, slots[2])
    lines.freed((slots[1],))
    assert lines.take_due() is hot[0]
    assert lines.take_due() is None
    lines.leave(hot[0])
    assert lines.take_due() is hot[1], "it is first now"
    assert lines.take_due() is None
    assert lines.first_number == 1
    assert len(lines) == 1000
