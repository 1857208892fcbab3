"""The position of a stream: each transaction once, in order, within the bound on memory."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st

from tests.support.served_partition import FETCH, MemoryConnection, ServedPartition
from waltz.client.core.codec import FeedRun, encode_message, parse
from waltz.client.core.feed import PartitionFeed
from waltz.client.core.mount import RequestIds
from waltz.client.core.read_ahead import ReadAhead
from waltz.protocol.client_server import FeedRequest, MountRequest
from waltz.protocol.frames import HEAD_BYTES

VERSION = 4


class Wire:
    """A stream's half of a partition and the server's, with a connection between.

    The log has ``count`` transactions at first.
    """

    def __init__(self, count: int, mark: int = -1) -> None:
        self.feed = PartitionFeed(RequestIds(5, 0), mark)
        self.server = ServedPartition()
        self.server.fill(count)
        self.downward: list[bytes] = []
        self.got: list[int] = []
        self.connection: MemoryConnection | None = None
        self.seq = -1

    def connect(self) -> None:
        if self.connection is not None:
            self.connection.lose()
        self.feed.detach()
        self.downward = []
        self.connection = self.server.connect(self.downward.append, VERSION)
        self.seq += 1
        self.feed.attach(1, self.seq, VERSION)

    def exchange(self, count: int = 100_000) -> None:
        """Deliver up to ``count`` messages to the client, and all that it sends to the server."""
        while True:
            outgoing = self.feed.effects.take_messages()
            for message in outgoing:
                assert self.connection is not None
                self.connection.receive([encode_message(message, VERSION)[HEAD_BYTES:]])
            bodies = self.downward[:count]
            del self.downward[:count]
            count -= len(bodies)
            for item in parse(bodies, VERSION):
                if isinstance(item, FeedRun):
                    self.feed.feed_received(item.records)
                    self.got += [record[4] for record in self.feed.effects.take_results()]
                else:
                    self.feed.received(item)
            if not self.feed.effects.messages and (not self.downward or not count):
                return

    def fetches(self) -> int:
        return sum(isinstance(m, FeedRequest) for m in self.server.handled)


def test_feed_has_every_transaction_after_the_mark_once() -> None:
    wire = Wire(40, mark=17)
    wire.connect()
    wire.exchange()
    assert wire.got == list(range(18, 40))


def test_feed_continues_with_later_transactions() -> None:
    wire = Wire(2)
    wire.connect()
    wire.exchange()
    for _ in range(3 * FETCH):
        wire.server.fill(1)
        wire.exchange()
    assert wire.got == list(range(2 + 3 * FETCH))


def test_feed_without_room_requests_no_fetch() -> None:
    wire = Wire(3)
    wire.feed.want(False)
    wire.connect()
    wire.exchange()
    assert wire.got == [0, 1, 2], "a mount feeds what is there"
    assert wire.fetches() == 0
    wire.feed.want(True)
    wire.exchange()
    assert wire.fetches() == 1
    wire.feed.want(False)
    wire.server.fill(FETCH)
    wire.exchange()
    assert wire.fetches() == 1
    assert len(wire.got) == 3 + FETCH
    wire.feed.want(True)
    wire.feed.want(True)
    wire.exchange()
    assert wire.fetches() == 2


def test_paused_feed_is_not_mounted_again() -> None:
    """While the stream does not read, missing answers are no sign of a fault."""
    wire = Wire(3)
    wire.connect()
    wire.feed.effects.messages.clear()
    wire.feed.want(False)
    for now in range(100):
        wire.feed.tick(float(now))
    assert wire.feed.effects.messages == []
    wire.feed.want(True)
    wire.feed.tick(100.0)
    wire.feed.tick(105.0)
    assert [type(m) for m in wire.feed.effects.messages] == [MountRequest]


def test_due_fetch_is_dropped_with_its_connection() -> None:
    wire = Wire(1)
    wire.feed.want(False)
    wire.connect()
    wire.exchange()
    wire.feed.detach()
    wire.feed.want(True)
    assert wire.feed.effects.messages == []


def test_position_beyond_the_log_is_detected() -> None:
    wire = Wire(3, mark=10)
    wire.connect()
    for tick in range(30):
        wire.exchange()
        wire.feed.tick(tick / 10)
    assert wire.feed.log_mark_behind == 2
    assert wire.feed.position == 10


@settings(max_examples=200)
@given(
    st.lists(
        st.tuples(
            st.sampled_from(("connect", "deliver", "fill", "room", "full")), st.integers(0, 9)
        ),
        max_size=40,
    ),
    st.integers(-1, 3),
)
def test_feed_is_ordered_and_unique_after_any_fault(
    steps: list[tuple[str, int]], mark: int
) -> None:
    wire = Wire(4, mark)
    wire.connect()
    for step, number in steps:
        match step:
            case "connect":
                wire.connect()
            case "deliver":
                wire.exchange(number)
            case "fill":
                wire.server.fill(number)
            case "room" | "full":
                wire.feed.want(step == "room")
    wire.feed.want(True)
    wire.exchange()
    assert wire.got == list(range(mark + 1, wire.server.mark + 1))


@given(
    st.integers(1, 10_000),
    st.integers(1, 20),
    st.lists(st.integers(0, 5_000), min_size=1, max_size=100),
)
def test_read_ahead_makes_progress_and_stays_bounded(
    limit: int, most: int, sizes: list[int]
) -> None:
    ahead = ReadAhead(limit, most)
    todo = list(sizes)
    open_reads: list[int] = []
    held: list[int] = []
    taken = 0
    while taken < len(sizes):
        while todo and ahead.has_room():
            ahead.requested()
            open_reads.append(todo.pop(0))
        assert open_reads or held, "stuck"
        assert len(open_reads) + len(held) <= most
        while open_reads:
            ahead.arrived(open_reads[0])
            held.append(open_reads.pop(0))
        while held:
            ahead.taken(held.pop(0))
            taken += 1


def test_read_ahead_adapts_to_the_data_size() -> None:
    ahead = ReadAhead(1 << 20, 10_000)

    def reads_open() -> int:
        count = 0
        while ahead.has_room():
            ahead.requested()
            count += 1
        return count

    def finish(count: int, size: int) -> None:
        for _ in range(count):
            ahead.arrived(size)
            ahead.taken(size)

    first = reads_open()
    finish(first, 100)
    for _ in range(5):
        finish(reads_open(), 100)
    assert reads_open() > 4 * first
