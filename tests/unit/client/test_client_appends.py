"""Test that the outcomes of appends follow from the log, whatever fault happens in between."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, precondition, rule

from tests.support.served_partition import MemoryConnection, ServedPartition
from waltz.client.core.append_values import Append, AppendResult, Outcome
from waltz.client.core.appends import PartitionAppends
from waltz.client.core.codec import FeedRun, encode_message, parse
from waltz.client.core.mount import RequestIds
from waltz.metadata.core.formats import UNRESOLVED
from waltz.protocol import ReqId, checksum
from waltz.protocol.client_numbers import (
    ANSWERED_APPEND_TYPE,
    APPEND_ANSWERS_SINCE,
    APPEND_TYPE,
)
from waltz.protocol.client_server import (
    AppendRequest,
    FeedRequest,
    FlushRequest,
    FlushResponse,
    HighWaterMarkRequest,
    HighWaterMarkResponse,
    LockFailure,
    MountRequest,
    MountResponse,
    MountState,
)

CLIENT = 7
LONG_WAIT = 5.0


def draft(data: bytes = b"x", **more: Any) -> Append:
    return Append(data, checksum(data), **more)


class Wire:
    """The client core and the server of a partition, and the connection between them.

    Messages are transferred as bytes, by `up`, `down` and `exchange`. ``lost_appends`` is how many
    of the next appends do not arrive.
    """

    def __init__(self, mark: int = -1, version: int = 4) -> None:
        self.version = version
        self.client = PartitionAppends(RequestIds(CLIENT, 0), mark, LONG_WAIT)
        self.server = ServedPartition()
        self.lost_appends = 0
        self.upward: list[bytes] = []
        self.downward: list[bytes] = []
        self.settled: list[AppendResult] = []
        self.connection: MemoryConnection | None = None
        self.now = 0.0
        self.seq = -1

    def connect(self) -> None:
        self.seq += 1
        self.downward = []
        self.connection = self.server.connect(self.downward.append, self.version)
        self.client.attach(self.server.generation, self.seq, self.version)

    def cut(self, *, delivered: int = 0) -> None:
        """Lose the connection; the server still receives ``delivered`` of its messages."""
        self.up(delivered)
        self.upward.clear()
        self.downward.clear()
        if self.connection is not None:
            self.connection.lose()
            self.client.effects.messages.clear()
            self.client.detach()
        self.connection = None

    def take(self) -> None:
        """Send the client's messages, and record the outcomes that it has settled."""
        outgoing = self.client.effects.take_messages()
        if self.connection is not None:
            self.upward += [encode_message(m, self.version)[7:] for m in outgoing]
        settled = self.client.effects.take_results()
        self.settled += settled

    def up(self, count: int | None = None) -> None:
        """Deliver the first ``count`` messages to the server."""
        self.take()
        count = len(self.upward) if count is None else count
        bodies, self.upward = self.upward[:count], self.upward[count:]
        for body in bodies:
            if body[0] in (APPEND_TYPE, ANSWERED_APPEND_TYPE) and self.lost_appends:
                self.lost_appends -= 1
            else:
                assert self.connection is not None
                self.connection.receive([body])

    def down(self, count: int | None = None) -> None:
        """Deliver the first ``count`` messages to the client."""
        count = len(self.downward) if count is None else count
        bodies = self.downward[:count]
        del self.downward[:count]
        for item in parse(bodies, self.version):
            if isinstance(item, FeedRun):
                self.client.feed_received(item.records)
            else:
                self.client.received(item)
        self.take()

    def exchange(self) -> None:
        """Deliver all messages until neither side sends any more."""
        self.take()
        while self.upward or self.downward:
            self.up()
            self.down()

    def outcomes(self) -> dict[object, Outcome]:
        found: dict[object, Outcome] = {}
        for settled in self.settled:
            assert settled.token not in found, "settled twice"
            found[settled.token] = settled.outcome
        return found


def mounted(*, stopped: bool = False, version: int = 4) -> Wire:
    """A mounted partition; if it is ``stopped``, its server decides and feeds only on request."""
    wire = Wire(version=version)
    wire.connect()
    wire.exchange()
    if stopped:
        wire.server.stop()
    return wire


def test_mounted_partition_requests_the_feed_and_commits_by_it() -> None:
    wire = mounted()
    assert [type(m) for m in wire.server.handled] == [MountRequest, FeedRequest]
    wire.client.append("a", draft(b"hello", header=3))
    wire.exchange()
    assert wire.settled == [AppendResult("a", Outcome.COMMITTED, 0)]
    assert wire.server.records[0].data == b"hello"
    assert wire.server.records[0].header == 3
    assert wire.client.mark == 0


def test_append_before_the_mount_is_sent_after_it() -> None:
    wire = Wire()
    wire.client.append("early", draft())
    wire.take()
    assert wire.upward == []
    assert wire.settled == []
    wire.connect()
    wire.exchange()
    assert wire.outcomes() == {"early": Outcome.COMMITTED}


def test_feed_is_requested_again_after_each_suspension() -> None:
    wire = mounted()
    for i in range(37):
        wire.client.append(i, draft())
        wire.exchange()
    assert wire.client.mark == 36
    assert [s.number for s in wire.settled] == list(range(37))


def test_append_without_a_mark_has_the_last_fed_transaction_as_its_mark() -> None:
    wire = mounted()
    wire.server.fill(3)
    wire.server.feed()
    wire.down()
    wire.client.append("default", draft())
    wire.client.append("given", draft(mark=1))
    wire.take()
    requests = [m for m in parse(wire.upward, 4) if isinstance(m, AppendRequest)]
    assert [r.client_high_water_mark for r in requests] == [2, 1]


def test_lock_failure_ends_when_its_transaction_is_fed() -> None:
    wire = mounted(stopped=True)
    wire.client.append("winner", draft(write_locks=(1,)))
    wire.client.append("loser", draft(write_locks=(1,)))
    wire.up()
    wire.server.decide()
    wire.down()
    assert wire.outcomes() == {}, "LockFailure has come, transaction 0 has not"
    wire.server.feed()
    wire.down()
    assert wire.settled[-1] == AppendResult("loser", Outcome.LOCK_FAILED, 0)
    assert wire.outcomes() == {"winner": Outcome.COMMITTED, "loser": Outcome.LOCK_FAILED}


def test_later_commit_makes_earlier_appends_absent() -> None:
    wire = mounted()
    wire.lost_appends = 2
    for token in "abc":
        wire.client.append(token, draft())
    wire.exchange()
    assert wire.outcomes() == {
        "a": Outcome.ABSENT,
        "b": Outcome.ABSENT,
        "c": Outcome.COMMITTED,
    }


def test_answered_flush_makes_earlier_appends_absent() -> None:
    wire = mounted()
    wire.lost_appends = 1
    wire.client.append("dropped", draft())
    wire.exchange()
    assert wire.outcomes() == {}
    wire.client.flush()
    wire.client.append("later", draft())
    wire.exchange()
    assert wire.outcomes() == {"dropped": Outcome.ABSENT, "later": Outcome.COMMITTED}


def test_answered_flush_counts_when_its_mark_is_fed() -> None:
    wire = mounted(stopped=True)
    wire.client.append("a", draft())
    wire.client.flush()
    wire.up()
    wire.server.decide()
    [request] = [m for m in wire.server.handled if isinstance(m, FlushRequest)]
    assert [type(m) for m in parse(wire.downward, 4)] == [FlushResponse]
    wire.down()
    assert wire.outcomes() == {}, "transaction 0 is not fed yet, and it is the append"
    wire.server.feed()
    wire.down()
    assert wire.outcomes() == {"a": Outcome.COMMITTED}
    assert request.req_id.client_id == CLIENT


def test_lost_connection_leaves_appends_in_doubt() -> None:
    wire = mounted(stopped=True)
    wire.client.append("in", draft(b"in"))
    wire.client.append("out", draft(b"out"))
    wire.cut(delivered=1)
    wire.client.tick(100.0)
    wire.client.tick(200.0)
    wire.take()
    assert wire.outcomes() == {}
    wire.server.decide()
    wire.server.go()
    wire.connect()
    wire.exchange()
    assert wire.outcomes() == {"in": Outcome.COMMITTED, "out": Outcome.ABSENT}
    assert [e.data for e in wire.server.records] == [b"in"]


def test_in_doubt_append_is_not_sent_twice() -> None:
    wire = mounted(stopped=True)
    wire.client.append("a", draft())
    for _ in range(3):
        wire.cut(delivered=1)
        wire.connect()
        wire.up()
    wire.server.go()
    wire.exchange()
    sent = [m.req_id for m in wire.server.handled if isinstance(m, AppendRequest)]
    assert len(sent) == len(set(sent)) == 1


def test_moved_partition_is_mounted_at_its_new_generation() -> None:
    wire = mounted()
    wire.client.append("a", draft())
    wire.exchange()
    wire.server.move()
    wire.client.append("old generation", draft())
    wire.exchange()
    assert wire.outcomes() == {"a": Outcome.COMMITTED}
    wire.client.attach(wire.server.generation, 0, 4)
    wire.exchange()
    assert wire.outcomes()["old generation"] is Outcome.ABSENT
    wire.client.append("new generation", draft())
    wire.exchange()
    assert wire.outcomes()["new generation"] is Outcome.COMMITTED
    assert wire.server.records[-1].req_id.generation == 2


def test_append_without_outcome_causes_a_flush() -> None:
    wire = mounted()
    wire.lost_appends = 1
    wire.client.append("a", draft())
    wire.exchange()
    for now in (0.0, LONG_WAIT - 0.1):
        wire.client.tick(now)
        wire.exchange()
        assert wire.outcomes() == {}
    wire.client.tick(LONG_WAIT)
    wire.exchange()
    assert wire.outcomes() == {"a": Outcome.ABSENT}


def test_progress_delays_the_flush() -> None:
    """As long as the oldest append changes, the client sends no flush."""
    wire = mounted(stopped=True)
    for i in range(10):
        wire.client.append(i, draft())
        wire.up()
        wire.server.decide()
        wire.server.feed()
        wire.down()
        wire.client.append("next", draft())
        wire.client.tick(float(i))
        wire.up()
        wire.server.decide()
        wire.server.feed()
        wire.down()
        wire.settled.clear()
    assert not any(isinstance(m, FlushRequest) for m in wire.server.handled)


def test_not_ready_mount_is_sent_again_after_the_backoff() -> None:
    wire = Wire()
    wire.server.is_hosted = False
    wire.connect()
    wire.client.append("a", draft())
    wire.exchange()
    wire.client.tick(0.0)
    wire.client.tick(0.4)
    wire.exchange()
    assert len(wire.server.handled) == 1
    wire.server.is_hosted = True
    wire.client.tick(0.5)
    wire.exchange()
    assert wire.outcomes() == {"a": Outcome.COMMITTED}


def test_unanswered_mount_is_sent_again() -> None:
    wire = Wire()
    wire.connect()
    wire.take()
    wire.upward.clear()
    wire.client.tick(0.0)
    wire.client.tick(4.9)
    wire.take()
    assert wire.upward == []
    wire.client.tick(5.0)
    wire.client.append("a", draft())
    wire.exchange()
    assert wire.outcomes() == {"a": Outcome.COMMITTED}


def tick_through(wire: Wire, seconds: float) -> None:
    for _ in range(round(seconds * 10)):
        wire.now += 0.1
        wire.client.tick(wire.now)
        wire.exchange()


@pytest.mark.parametrize("version", [0, 1, 2, 3, 4])
def test_client_ahead_of_the_log_is_reported_with_the_log_mark(version: int) -> None:
    wire = Wire(mark=9, version=version)
    wire.server.fill(5)
    wire.connect()
    wire.client.append("waiting", draft())
    wire.exchange()
    tick_through(wire, 4.0)
    assert wire.settled == [AppendResult("waiting", Outcome.AHEAD, 4)]
    assert wire.client.mark == 9
    wire.client.append("later", draft())
    wire.take()
    assert wire.settled[-1] == AppendResult("later", Outcome.AHEAD, 4)
    assert wire.server.mark == 4


@pytest.mark.parametrize("version", [0, 4])
def test_server_that_catches_up_ends_the_ahead_check(version: int) -> None:
    """A server that has not noticed yet that it owns the partition again may answer from an older
    log.
    """
    wire = Wire(mark=4, version=version)
    wire.server.fill(3)
    wire.connect()
    wire.client.append("a", draft())
    wire.exchange()
    tick_through(wire, 0.6)
    wire.server.fill(2)
    tick_through(wire, 4.0)
    assert wire.outcomes() == {"a": Outcome.COMMITTED}


@pytest.mark.parametrize("version", [0, 2])
def test_not_ready_with_unresolved_mark_of_old_server_is_retried(version: int) -> None:
    """Servers of 0.13.2 also answered a request for the mark before the partition was open."""
    wire = Wire(mark=4, version=version)
    wire.server.fill(5)
    wire.server.is_hosted = False
    wire.connect()
    wire.client.append("a", draft())
    wire.exchange()
    requests = 0
    for _ in range(60):
        tick_through(wire, 0.1)
        for request in wire.server.handled:
            if isinstance(request, HighWaterMarkRequest):
                requests += 1
                wire.client.received(HighWaterMarkResponse(request.req_id, UNRESOLVED))
        wire.server.handled.clear()
    assert requests > 3
    assert wire.outcomes() == {}
    wire.server.is_hosted = True
    tick_through(wire, 1.0)
    assert wire.outcomes() == {"a": Outcome.COMMITTED}


@pytest.mark.parametrize(
    ("version", "locks"), [(0, {"read_locks": (1,)}), (1, {"append_locks": (1,)})]
)
def test_locks_unknown_to_the_server_are_not_sent(version: int, locks: Any) -> None:
    wire = mounted(version=version)
    wire.client.append("a", draft(**locks))
    wire.client.append("b", draft(write_locks=(1,)))
    wire.exchange()
    assert wire.settled[0] == AppendResult("a", Outcome.UNSUPPORTED, version)
    assert wire.outcomes()["b"] is Outcome.COMMITTED


def test_repeated_and_out_of_order_transactions_are_ignored() -> None:
    wire = mounted()
    wire.server.fill(3)
    wire.server.feed()
    records = [(9999, 0, 0, i, i, 0) for i in (1, 2, 7, 2, 0)]
    wire.down()
    wire.client.feed_received(records)
    assert wire.client.mark == 2


def test_messages_of_other_sessions_are_ignored() -> None:
    wire = Wire()
    wire.connect()
    wire.take()
    stale = RequestIds(CLIENT, 0, last=100).next(1)
    wire.client.received(MountResponse(stale, MountState.READY))
    wire.client.received(LockFailure(stale, -1))
    wire.client.received(FlushResponse(stale, -1))
    wire.client.append("a", draft())
    wire.take()
    assert wire.settled == []
    assert [type(m) for m in parse(wire.upward, 4)] == [MountRequest]


def test_withdraw_returns_the_known_outcomes() -> None:
    wire = Wire()
    wire.client.append("unsent", draft())
    assert wire.client.withdraw(["unsent"]) == [AppendResult("unsent", Outcome.UNSENT)]
    wire.connect()
    wire.exchange()
    assert wire.server.mark == -1
    wire.server.stop()
    wire.client.append("sent", draft())
    wire.up()
    [sent] = wire.client.withdraw(["sent"])
    assert sent.outcome is Outcome.UNCERTAIN
    wire.server.decide()
    assert wire.server.ids() == [sent.req_id]


def test_append_that_is_given_up_is_in_doubt_and_still_settles_earlier_ones() -> None:
    wire = mounted(stopped=True)
    for token in ("lost", "given up"):
        wire.client.append(token, draft())
    [_, request] = wire.client.effects.messages
    assert isinstance(request, AppendRequest)
    wire.client.give_up(request.req_id)
    wire.client.give_up(ReqId(CLIENT, 0, 0, 99))
    wire.take()
    assert wire.settled == [AppendResult("given up", Outcome.UNCERTAIN, req_id=request.req_id)]
    del wire.upward[0]
    wire.up()
    wire.server.decide()
    wire.server.feed()
    wire.down()
    # The call of the second append has ended and ignores its later outcome.
    assert wire.settled[1:] == [
        AppendResult("lost", Outcome.ABSENT),
        AppendResult("given up", Outcome.COMMITTED, 0),
    ]


def test_close_settles_every_append() -> None:
    wire = mounted(stopped=True)
    wire.client.append("sent", draft())
    wire.cut(delivered=1)
    wire.client.append("unsent", draft())
    wire.client.close()
    wire.take()
    assert wire.outcomes() == {"sent": Outcome.UNCERTAIN, "unsent": Outcome.UNSENT}


def test_sequence_numbers_wrap_at_32_bits() -> None:
    ids = RequestIds(CLIENT, 0, last=2**31 - 3)
    assert [ids.next(0).seq for _ in range(4)] == [2**31 - 2, 2**31 - 1, -(2**31), 1 - 2**31]
    wire = mounted()
    wire.client._ids.last = 2**31 - 3
    for i in range(6):
        wire.client.append(i, draft())
    wire.exchange()
    assert [s.number for s in wire.settled] == list(range(6))


class Faults(RuleBasedStateMachine):
    """Losses, moves, silent drops, locks and partial deliveries in any order, then no faults.

    Without further faults every append gets an outcome. A committed append is in the log once, at
    the reported id. An absent or refused append is not in the log.
    """

    some = st.integers(0, 4)
    behind = st.sampled_from((None, None, 0, 1, 3))

    @initialize(version=st.sampled_from((2, 4, 5, 6, 6, 6)))
    def begin(self, version: int) -> None:
        self.wire = mounted(stopped=True, version=version)
        self.appended = 0

    @rule(count=st.integers(1, 3), locks=st.lists(st.integers(0, 2), max_size=1), behind=behind)
    def append(self, count: int, locks: list[int], behind: int | None) -> None:
        for _ in range(count):
            self.wire.client.append(self.appended, self._draft(locks, behind))
            self.appended += 1

    @rule(count=st.integers(1, 3), locks=st.lists(st.integers(0, 2), max_size=1), behind=behind)
    def append_batch(self, count: int, locks: list[int], behind: int | None) -> None:
        tokens = range(self.appended, self.appended + count)
        drafts = []
        for _ in tokens:
            drafts.append(self._draft(locks, behind))
            self.appended += 1
        self.wire.client.append_batch(tokens, drafts)

    def _draft(self, locks: list[int], behind: int | None) -> Append:
        mark = None if behind is None else max(-1, self.wire.client.log_mark - behind)
        return draft(b"%d" % self.appended, write_locks=tuple(locks), mark=mark)

    @rule(count=some)
    def up(self, count: int) -> None:
        self.wire.up(count)

    @rule(count=some)
    def down(self, count: int) -> None:
        self.wire.down(count)

    @rule()
    def let_it_run(self) -> None:
        self.wire.server.go()
        self.wire.server.decide()
        self.wire.exchange()
        self.wire.server.stop()

    @rule(count=some)
    def decide(self, count: int) -> None:
        self.wire.server.decide(count)

    @rule()
    def lose_requests(self) -> None:
        self.wire.server.lose_requests()

    @rule()
    def feed(self) -> None:
        self.wire.server.feed()

    @precondition(lambda self: self.wire.connection is None)
    @rule(run=st.booleans(), version=st.sampled_from((4, 5, 6, 6, None)))
    def connect(self, run: bool, version: int | None) -> None:
        """Connect to a server of ``version``, None: the version of before."""
        self.wire.version = version or self.wire.version
        self.wire.connect()
        if run:
            self.let_it_run()

    @rule(delivered=some)
    def cut(self, delivered: int) -> None:
        self.wire.cut(delivered=delivered)

    @rule(decided=some)
    def move(self, decided: int) -> None:
        self.wire.server.decide(decided)
        self.wire.server.move()
        if self.wire.connection is not None:
            self.wire.client.attach(self.wire.server.generation, self.wire.seq, self.wire.version)

    @rule(count=some)
    def drop_appends(self, count: int) -> None:
        self.wire.lost_appends = count

    @rule(seconds=st.floats(0, 6))
    def tick(self, seconds: float) -> None:
        self.wire.now += seconds
        self.wire.client.tick(self.wire.now)

    @rule(count=some)
    def others_append(self, count: int) -> None:
        self.wire.server.fill(count)

    @rule()
    def flush(self) -> None:
        self.wire.client.flush()

    @rule()
    def release(self) -> None:
        self.wire.server.is_hosted = False

    @precondition(lambda self: not self.wire.server.is_hosted)
    @rule()
    def host_again(self) -> None:
        """A server that has released a partition owns it again only in a new generation."""
        self.wire.server.is_hosted = True
        self.move(decided=0)

    def teardown(self) -> None:
        wire = self.wire
        self._calm()
        outcomes = wire.outcomes()
        assert set(outcomes) == set(range(self.appended))
        own = [e.data for e in wire.server.records if e.req_id.client_id == CLIENT]
        assert len(own) == len(set(own)), "in the log twice"
        for settled in wire.settled:
            data = str(settled.token).encode()
            if settled.outcome is Outcome.COMMITTED:
                assert wire.server.records[settled.number].data == data
            else:
                assert settled.outcome in (
                    Outcome.ABSENT,
                    Outcome.LOCK_FAILED,
                    Outcome.UNSUPPORTED,
                )
                assert data not in own
        if wire.version < APPEND_ANSWERS_SINCE:
            assert wire.client.mark == wire.server.mark
        assert wire.client.mark <= wire.client.log_mark <= wire.server.mark

    def _calm(self) -> None:
        wire = self.wire
        wire.lost_appends = 0
        if not wire.server.is_hosted:
            self.host_again()
        wire.server.go()
        if wire.connection is None:
            wire.connect()
        for _ in range(200):
            wire.server.decide()
            wire.server.feed()
            tick_through(wire, 0.1)


# The machine takes ten seconds of CPU time. On a busy machine that may be more than the time limit
# of other tests.
TestFaults = pytest.mark.timeout(900)(Faults.TestCase)
TestFaults.settings = settings(max_examples=120, stateful_step_count=60)
