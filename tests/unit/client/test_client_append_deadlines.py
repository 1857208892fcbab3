"""Test appends whose timeout passes in the same turn of the event loop as an answer."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, cast

import pytest

from tests.support.eventually import eventually
from tests.support.served_partition import ServedPartition
from waltz.client import (
    Absent,
    Appended,
    AppendUncertain,
    ClientClosed,
    ClusterUnreachable,
    LockFailed,
    Refused,
)
from waltz.client.appender import Appender
from waltz.client.core.append_values import Append
from waltz.client.core.codec import encode_message
from waltz.client.core.directory import Directory
from waltz.client.link import ServerLink
from waltz.client.request_client import RequestClient
from waltz.net import PLAINTEXT, Dialer
from waltz.protocol import CLIENT_SERVER, checksum, client_server
from waltz.protocol.client_server import (
    AppendBatchRequest,
    AppendBatchResponse,
    AppendRequest,
    FeedData,
    FlushRequest,
)
from waltz.protocol.frames import HEAD_BYTES

VERSION = 5
SECONDS = 10.0
LOCK = 5


def data(text: bytes, locks: tuple[int, ...] = (), mark: int | None = None) -> Append:
    return Append(text, checksum(text), write_locks=locks, mark=mark)


@dataclass
class Wire:
    """An appender without a network: requests arrive immediately, and so do the answers.

    ``holding`` says which answers are held back until `deliver`.
    """

    appender: Appender
    partition: ServedPartition = field(default_factory=ServedPartition)
    seq: int = 0
    version: int = VERSION
    holding: Callable[[Any], bool] = lambda message: False
    held: list[bytes] = field(default_factory=list)

    def __post_init__(self) -> None:
        self._connection = self.partition.connect(self._answer, VERSION)

    def send(self, messages: list[Any]) -> None:
        loop = asyncio.get_running_loop()
        for message in messages:
            body = encode_message(message, VERSION)[HEAD_BYTES:]
            loop.call_soon(self._connection.receive, [body])

    def deliver(self) -> None:
        held, self.held = self.held, []
        self.appender.received(cast(ServerLink, self), held)

    def commit(self) -> None:
        self.partition.decide()
        self.partition.feed()

    def _answer(self, body: bytes) -> None:
        if self.holding(client_server.decode(body, VERSION)):
            self.held.append(body)
        else:
            self.appender.received(cast(ServerLink, self), [body])


class Marks:
    def note_mark(self, partition: int, mark: int) -> None:
        pass

    async def check_mark(self, partition: int, mark: int | None) -> None:
        pass

    def known_mark(self, partition: int) -> int:
        return -1

    def problems(self) -> str:
        return ""


@pytest.fixture
async def wire() -> Wire:
    """An appender whose partition is mounted."""
    marks = cast(RequestClient, Marks())
    dialer = Dialer(PLAINTEXT, CLIENT_SERVER)
    appender = Appender(1, Directory(), dialer, marks, max_in_flight=100, long_wait_seconds=1000.0)
    wire = Wire(appender)
    await appender.mount(0, -1)
    appender.attached(0, cast(ServerLink, wire), 1)
    await eventually(lambda: appender.is_mounted(0))
    return wire


@pytest.fixture
async def undecided(wire: Wire) -> Wire:
    """The same; its server decides appends only when the test resolves them."""
    wire.partition.stop()
    return wire


class Lateness:
    """Makes the event loop late: everything due within ``seconds`` is due in the next turn."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self._loop = asyncio.get_running_loop()
        self._time = self._loop.time
        self._ahead = 0.0
        monkeypatch.setattr(self._loop, "time", lambda: self._time() + self._ahead)

    def be(self, seconds: float) -> None:
        self._ahead += seconds


@pytest.fixture
async def lateness(monkeypatch: pytest.MonkeyPatch) -> Lateness:
    return Lateness(monkeypatch)


async def arrived(wire: Wire, kind: type) -> None:
    await eventually(lambda: any(isinstance(each, kind) for each in wire.partition.handled))


def answers_and_feed_after(transaction_id: int) -> Callable[[Any], bool]:
    """Select the answers to batches, and the feed of transactions after ``transaction_id``."""

    def is_selected(message: Any) -> bool:
        if isinstance(message, FeedData):
            return message.transaction_id > transaction_id
        return isinstance(message, AppendBatchResponse)

    return is_selected


NEWS_SECONDS = pytest.mark.parametrize("seconds", [SECONDS - 0.5, SECONDS + 0.5])
"""When the answer comes: before or after the deadline, and in the same turn of the loop."""


@NEWS_SECONDS
async def test_commit_at_the_deadline_returns_its_id(
    undecided: Wire, lateness: Lateness, seconds: float
) -> None:
    append = asyncio.ensure_future(undecided.appender.append(0, data(b"x"), SECONDS))
    await arrived(undecided, AppendRequest)
    asyncio.get_running_loop().call_later(seconds, undecided.commit)
    lateness.be(100)
    assert await append == 0
    assert undecided.partition.mark == 0
    assert undecided.appender.in_flight(0) == 0


async def test_appends_in_doubt_count_as_in_flight_until_their_outcome_is_certain(
    undecided: Wire, lateness: Lateness
) -> None:
    """Otherwise a partition without a quorum would be sent appends without a limit."""
    appender = undecided.appender
    batch = [data(b"a"), data(b"b")]
    sent = asyncio.gather(
        *(appender.append(0, data(b"x"), SECONDS) for _ in range(98)),
        appender.append_batch(0, batch, SECONDS),
        return_exceptions=True,
    )
    await arrived(undecided, AppendBatchRequest)
    waiting = asyncio.ensure_future(appender.append(0, data(b"y"), 3 * SECONDS))
    lateness.be(SECONDS + 1)
    assert {type(error) for error in await sent} == {AppendUncertain}
    assert appender.in_flight(0) == 100
    lateness.be(2 * SECONDS)
    with pytest.raises(ClusterUnreachable):
        await waiting
    undecided.commit()

    def is_fed() -> bool:
        undecided.partition.feed()
        return appender.in_flight(0) == 0

    await eventually(is_fed)
    assert undecided.partition.mark == 99


@NEWS_SECONDS
async def test_append_refused_at_its_deadline_raises_lock_failed(
    undecided: Wire, lateness: Lateness, seconds: float
) -> None:
    undecided.partition.fill(1, (LOCK,))
    append = undecided.appender.append(0, data(b"x", (LOCK,), mark=-1), SECONDS)
    task = asyncio.ensure_future(append)
    await arrived(undecided, AppendRequest)
    asyncio.get_running_loop().call_later(seconds, undecided.commit)
    lateness.be(100)
    with pytest.raises(LockFailed) as caught:
        await task
    assert caught.value.transaction_id == 0


async def test_refusal_at_the_deadline_counts_before_its_conflict_is_fed(
    undecided: Wire,
    lateness: Lateness,
) -> None:
    """A committed append waits for the feed. At the deadline the caller gets the known outcome."""
    undecided.partition.fill(2)
    undecided.partition.fill(1, (LOCK,))
    append = undecided.appender.append(0, data(b"x", (LOCK,), mark=-1), SECONDS)
    task = asyncio.ensure_future(append)
    await arrived(undecided, AppendRequest)
    undecided.partition.decide()
    assert undecided.appender.mark(0) == -1
    lateness.be(100)
    with pytest.raises(LockFailed) as caught:
        await task
    assert caught.value.transaction_id == 2


async def test_batch_with_all_outcomes_known_at_the_deadline_returns_them(
    undecided: Wire,
    lateness: Lateness,
) -> None:
    """Both outcomes are known, although the feed has shown only one append: the transaction that
    took the lock of the other one was not fed yet.
    """
    undecided.partition.fill(2)
    undecided.partition.fill(1, (LOCK,))
    batch = [data(b"a", mark=-1), data(b"b", (LOCK,), mark=-1), data(b"c", mark=-1)]
    task = asyncio.ensure_future(undecided.appender.append_batch(0, batch, SECONDS))
    await arrived(undecided, AppendBatchRequest)
    undecided.partition.decide()
    assert undecided.appender.mark(0) == -1
    lateness.be(100)
    assert await task == [Appended(3), Refused(2), Appended(4)]


async def test_uncertain_batch_has_the_known_outcomes(undecided: Wire, lateness: Lateness) -> None:
    undecided.holding = answers_and_feed_after(1)
    batch = [data(b"%d" % i) for i in range(4)]
    task = asyncio.ensure_future(undecided.appender.append_batch(0, batch, SECONDS))
    await arrived(undecided, AppendBatchRequest)
    undecided.commit()
    lateness.be(100)
    with pytest.raises(AppendUncertain, match="2 of the 4 appends") as caught:
        await task
    assert caught.value.outcomes == (Appended(0), Appended(1), None, None)
    assert caught.value.req_id == undecided.partition.ids()[2]
    undecided.deliver()
    assert undecided.appender.mark(0) == 3


async def test_sent_append_without_answer_is_uncertain(undecided: Wire, lateness: Lateness) -> None:
    task = asyncio.ensure_future(undecided.appender.append(0, data(b"x"), SECONDS))
    await arrived(undecided, AppendRequest)
    lateness.be(100)
    with pytest.raises(AppendUncertain, match="no outcome within 10 s") as caught:
        await task
    undecided.partition.decide()
    assert undecided.partition.ids() == [caught.value.req_id]
    assert caught.value.outcomes == ()


@pytest.mark.parametrize("batch", [False, True])
async def test_unsent_append_at_the_deadline_is_never_sent(
    wire: Wire, lateness: Lateness, batch: bool
) -> None:
    wire.appender.detached(0)
    appender = wire.appender
    task: asyncio.Task[object] = asyncio.ensure_future(
        appender.append_batch(0, [data(b"x"), data(b"y")], SECONDS)
        if batch
        else appender.append(0, data(b"x"), SECONDS)
    )
    await asyncio.sleep(0)
    lateness.be(100)
    with pytest.raises(ClusterUnreachable, match="nothing was sent"):
        await task
    appender.attached(0, cast(ServerLink, wire), 1)
    assert await appender.append(0, data(b"z"), None) == 0
    assert [entry.data for entry in wire.partition.records] == [b"z"]


@NEWS_SECONDS
async def test_absent_append_at_the_deadline_is_not_uncertain(
    undecided: Wire, lateness: Lateness, seconds: float
) -> None:
    """The client would send it again, but the connection is lost or the time has run out."""
    appender = undecided.appender
    task = asyncio.ensure_future(appender.append(0, data(b"lost"), SECONDS))
    await arrived(undecided, AppendRequest)
    flush = asyncio.ensure_future(appender.flush())
    await arrived(undecided, FlushRequest)

    def lose() -> None:
        undecided.partition.lose_requests()
        appender.detached(0)

    asyncio.get_running_loop().call_later(seconds, lose)
    lateness.be(100)
    with pytest.raises(ClusterUnreachable, match="the append is not in the log"):
        await task
    await flush
    undecided.partition.go()
    appender.attached(0, cast(ServerLink, undecided), 1)
    assert await appender.append(0, data(b"next"), None) == 0


@pytest.mark.parametrize("decided_first", [False, True])
async def test_cancelled_append_with_known_outcome_ends_as_cancelled(
    undecided: Wire, decided_first: bool
) -> None:
    """The append leaves no state behind, and later appends are not affected."""
    task = asyncio.ensure_future(undecided.appender.append(0, data(b"x"), SECONDS))
    await arrived(undecided, AppendRequest)
    if decided_first:
        undecided.commit()
        task.cancel()
    else:
        task.cancel()
        undecided.commit()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert undecided.appender.in_flight(0) == undecided.appender.pending == 0
    undecided.partition.go()
    assert await undecided.appender.append(0, data(b"y"), None) == 1


async def test_closed_client_reports_known_outcomes_of_an_uncertain_batch(undecided: Wire) -> None:
    batch = [data(b"%d" % i) for i in range(3)]
    task = asyncio.ensure_future(undecided.appender.append_batch(0, batch, SECONDS))
    await arrived(undecided, AppendBatchRequest)
    undecided.holding = answers_and_feed_after(0)
    undecided.commit()
    undecided.appender.end(ClientClosed)
    with pytest.raises(AppendUncertain, match="this client is closed") as caught:
        await task
    assert caught.value.outcomes == (Appended(0), None, None)


async def test_closed_client_returns_outcomes_of_an_answered_batch(undecided: Wire) -> None:
    batch = [data(b"%d" % i) for i in range(3)]
    task = asyncio.ensure_future(undecided.appender.append_batch(0, batch, SECONDS))
    await arrived(undecided, AppendBatchRequest)
    undecided.partition.decide(1)
    undecided.partition.lose_requests()
    assert undecided.appender.mark(0) == -1
    undecided.appender.end(ClientClosed)
    assert await task == [Appended(0), Absent(), Absent()]


async def test_timeout_error_of_another_cause_is_not_replaced(
    wire: Wire,
    monkeypatch: pytest.MonkeyPatch,
) -> None:

    async def mark(partition: int) -> int:
        raise TimeoutError("the network's")

    monkeypatch.setattr(Marks, "read_mark", staticmethod(mark), raising=False)
    with pytest.raises(TimeoutError, match="the network's"):
        await wire.appender.append(1, data(b"x"), SECONDS)


async def test_batch_gets_room_among_continuous_single_appends(wire: Wire) -> None:
    appender = wire.appender
    stop = asyncio.Event()

    async def singles() -> None:
        while not stop.is_set():
            await appender.append(0, data(b"single"), None)

    busy = [asyncio.ensure_future(singles()) for _ in range(3)]
    await asyncio.sleep(0)
    batch = await appender.append_batch(0, [data(b"batch")] * 99, SECONDS)
    stop.set()
    await asyncio.gather(*busy)
    assert len(batch) == 99
