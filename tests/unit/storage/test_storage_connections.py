"""Test how many requests a storage's connection accepts, and when it stops reading."""

from __future__ import annotations

import uuid
from typing import Any, ClassVar, cast

import pytest

from waltz.net import AllowedNames, FrameConnection
from waltz.protocol import MalformedMessage, admin, storage
from waltz.protocol.frames import HEAD_BYTES
from waltz.protocol.records import Record, RecordBatch, ReqId
from waltz_storage.core.engine.engine import Arrival, RequestJob
from waltz_storage.core.engine.rounds import AppendJob
from waltz_storage.shell.admin_handler import AdminHandler
from waltz_storage.shell.connections import AdminConnection, ClusterIdentity, ServerConnection
from waltz_storage.shell.request_intake import MOST_WAITING_READS

NO_PULLS = cast(Any, None)
VERSION = 1
AT_ONCE = 4
"""How many lists of 16 MiB, or appends of that size, are done at a time."""


class Peer:
    """A connection that records whether it is read, and the answers sent to it."""

    version = VERSION
    peer = "10.0.0.1:4711"

    def __init__(self) -> None:
        self.closed = False
        self.congested = False
        self.reading = True
        self.changes = 0
        self.large_allowed = True
        self.sent: list[bytes] = []

    def pause_reading(self) -> None:
        assert self.reading
        self.reading = False
        self.changes += 1

    def resume_reading(self) -> None:
        assert not self.reading
        self.reading = True
        self.changes += 1

    def allow_large_requests(self, allowed: bool) -> None:
        self.large_allowed = allowed

    def send(self, *frames: bytes) -> None:
        self.sent += frames

    def close(self, reason: str) -> None:
        self.closed = True
        self.sent.append(f"closed: {reason}".encode())


class Scene:
    """A server's connection, and the requests that it has submitted to the engine."""

    def __init__(self) -> None:
        self.submitted: list[Arrival] = []
        self.peer = Peer()
        identity = ClusterIdentity(uuid.UUID(int=1), 3)
        self.connection = ServerConnection(identity, self.submitted.extend, lambda: 0.0)
        self.connection.ready(cast(FrameConnection, self.peer))

    def receive(self, *requests: Any) -> None:
        bodies = [storage.encode(r, VERSION)[HEAD_BYTES:] for r in requests]
        self.connection.received(bodies)

    def answer(self) -> None:
        """Answer the oldest request."""
        job = self.submitted.pop(0).job
        assert isinstance(job, RequestJob)
        job.reply(storage.SuccessResponse(1, job.request.seq_num, 0))


def seq_of(arrival: Arrival) -> int:
    assert isinstance(arrival.job, AppendJob | RequestJob)
    return arrival.job.request.seq_num


def reads(count: int) -> list[storage.BoundedRecordListRequest]:
    return [storage.BoundedRecordListRequest(1, seq, 0, 0, 10, 16 << 20) for seq in range(count)]


def append(seq: int, size: int = 10) -> storage.AppendRequest:
    records = RecordBatch.of([Record(seq, ReqId(1, 2, 0, seq), 0, bytes(size), 7)])
    return storage.AppendRequest(1, seq, 0, records)


@pytest.fixture
def scene() -> Scene:
    return Scene()


def test_connection_with_too_many_requests_is_not_read_until_they_are_answered(
    scene: Scene,
) -> None:
    scene.receive(*reads(AT_ONCE + MOST_WAITING_READS))
    assert scene.peer.reading
    scene.receive(*reads(2))
    assert len(scene.submitted) == AT_ONCE
    assert not scene.peer.reading
    scene.answer()
    assert len(scene.submitted) == AT_ONCE
    assert not scene.peer.reading, "one request too many still waits"
    scene.answer()
    assert len(scene.submitted) == AT_ONCE
    assert scene.peer.reading
    assert scene.peer.changes == 2


def test_connection_with_too_many_bytes_of_appends_is_not_read_until_they_are_answered(
    scene: Scene,
) -> None:
    scene.receive(*(append(seq, 16 << 20) for seq in range(AT_ONCE + 1)))
    assert len(scene.submitted) == AT_ONCE
    assert not scene.peer.reading
    job = scene.submitted.pop(0).job
    assert isinstance(job, AppendJob)
    job.reply(storage.SuccessResponse(1, 0, 0))
    assert len(scene.submitted) == AT_ONCE
    assert scene.peer.reading


def test_append_overtakes_reads_that_wait_for_other_reads(scene: Scene) -> None:
    scene.receive(*reads(AT_ONCE + 10), append(99))
    assert [seq_of(arrival) for arrival in scene.submitted] == [*range(AT_ONCE), 99]
    assert scene.peer.reading
    scene.receive(append(100))
    assert seq_of(scene.submitted[-1]) == 100
    scene.answer()
    assert seq_of(scene.submitted[-1]) == AT_ONCE, "the oldest read follows"


def test_read_does_not_overtake_an_append_that_waits(scene: Scene) -> None:
    scene.receive(*(append(seq, 16 << 20) for seq in range(AT_ONCE + 1)), *reads(1))
    assert [seq_of(arrival) for arrival in scene.submitted] == [*range(AT_ONCE)]


def test_connection_whose_peer_does_not_read_begins_no_request(scene: Scene) -> None:
    scene.peer.congested = True
    scene.receive(*reads(1))
    assert scene.submitted == []
    assert not scene.peer.reading
    scene.peer.congested = False
    scene.connection.writable()
    assert len(scene.submitted) == 1
    assert scene.peer.reading


def test_lost_connection_drops_its_waiting_requests(scene: Scene) -> None:
    scene.receive(*reads(AT_ONCE + 1))
    scene.peer.closed = True
    scene.connection.lost("gone")
    while scene.submitted:
        scene.answer()
    assert scene.submitted == []


def test_requests_of_one_chunk_are_submitted_together_and_in_order() -> None:
    calls: list[list[int]] = []
    connection = ServerConnection(
        ClusterIdentity(uuid.UUID(int=1), 3),
        lambda arrivals: calls.append([a.job.request.seq_num for a in arrivals]),  # type: ignore[union-attr]
        lambda: 0.0,
    )
    connection.ready(cast(FrameConnection, Peer()))
    requests = [storage.MaxTransactionIdRequest(1, seq, seq % 3) for seq in range(5)]
    connection.received([storage.encode(r, VERSION)[HEAD_BYTES:] for r in requests])
    assert calls == [[0, 1, 2, 3, 4]]


def broken(body: bytes, version: int) -> Any:
    raise KeyError("a bug in decoding")


def test_unexpected_error_in_decoding_makes_a_server_request_malformed(
    scene: Scene, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(storage, "decode", broken)
    with pytest.raises(MalformedMessage, match="a bug in decoding"):
        scene.receive(*reads(1))
    assert scene.submitted == []


def test_unexpected_error_in_decoding_makes_an_admin_request_malformed(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    identity = ClusterIdentity(uuid.UUID(int=1), 3)
    connection = AdminConnection(identity, cast(AdminHandler, None), lambda: "", NO_PULLS)
    connection.ready(cast(FrameConnection, Peer()))
    monkeypatch.setattr(admin, "decode", broken)
    with pytest.raises(MalformedMessage, match="a bug in decoding"):
        connection.received([admin.encode(admin.MetricsRequest(1), VERSION)[HEAD_BYTES:]])


def test_administrator_may_send_large_messages_after_the_open_request() -> None:
    key = uuid.UUID(int=1)
    connection = AdminConnection(
        ClusterIdentity(key, 3), cast(AdminHandler, None), lambda: "", cast(Any, None)
    )
    peer = Peer()
    connection.ready(cast(FrameConnection, peer))
    assert not peer.large_allowed
    for opened, allowed in ((uuid.UUID(int=2), False), (key, True)):
        request = admin.AdminOpenRequest(-1, opened, 3)
        connection.received([admin.encode(request, VERSION)[HEAD_BYTES:]])
        assert peer.large_allowed is allowed


def test_first_request_of_a_session_logs_its_peer(
    scene: Scene, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("INFO")
    scene.receive(
        storage.LastSessionInfoRequest(7, 0, 2),
        storage.MaxTransactionIdRequest(7, 1, 2),
        storage.MaxTransactionIdRequest(6, 2, 2),
        storage.CommittedRecordListRequest(9, 3, 2, 0, 9, 9, 1000),
        storage.MaxTransactionIdRequest(9, 4, 3),
    )
    scene.receive(storage.LastSessionInfoRequest(8, 5, 2))
    assert [record.getMessage() for record in caplog.records] == [
        "partition 2: session 7 is used by 10.0.0.1:4711",
        "partition 2: session 8 is used by 10.0.0.1:4711",
    ]


def test_peer_may_send_large_messages_only_after_it_has_opened(scene: Scene) -> None:
    assert not scene.peer.large_allowed
    scene.receive(storage.OpenRequest(-1, -1, -1, uuid.UUID(int=2), 3))
    assert not scene.peer.large_allowed, "the peer belongs to another cluster"
    scene.receive(storage.OpenRequest(-1, -1, -1, uuid.UUID(int=1), 3))
    assert scene.peer.large_allowed


# ---- names in certificates

REFUSAL = (
    "its certificate has client; storage.allowedNames must contain a name of the certificate "
    "before the peer may use this port"
)


class NamedPeer(Peer):
    """A peer with a certificate."""

    peer_certificate: ClassVar[dict[str, Any]] = {"subject": ((("commonName", "client"),),)}


def server_connection(
    allowed: tuple[str, ...],
) -> tuple[ServerConnection, NamedPeer, list[Arrival]]:
    submitted: list[Arrival] = []
    connection = ServerConnection(
        ClusterIdentity(uuid.UUID(int=1), 3),
        submitted.extend,
        lambda: 0.0,
        AllowedNames("storage.allowedNames", allowed),
    )
    peer = NamedPeer()
    connection.ready(cast(FrameConnection, peer))
    return connection, peer, submitted


async def test_peer_with_another_name_gets_no_request_done(
    caplog: pytest.LogCaptureFixture,
) -> None:
    connection, peer, submitted = server_connection(("server",))
    connection.received([storage.encode(request, VERSION)[HEAD_BYTES:] for request in reads(2)])
    assert submitted == []
    assert peer.sent == [f"closed: {REFUSAL}".encode()]
    assert caplog.messages == [f"refused a storage connection from {Peer.peer}: {REFUSAL}"]


async def test_peer_with_another_name_gets_the_reason_for_its_open_request() -> None:
    connection, peer, submitted = server_connection(("server",))
    opening = storage.OpenRequest(-1, -1, -1, uuid.UUID(int=1), 3)
    connection.received([storage.encode(opening, VERSION)[HEAD_BYTES:]])
    answer, closed = b"".join(peer.sent[:-1]), peer.sent[-1]
    assert REFUSAL.encode() in answer
    assert closed == f"closed: {REFUSAL}".encode()
    assert submitted == []


async def test_peer_with_an_allowed_name_is_served(caplog: pytest.LogCaptureFixture) -> None:
    connection, peer, submitted = server_connection(("server", "client"))
    connection.received([storage.encode(request, VERSION)[HEAD_BYTES:] for request in reads(2)])
    assert len(submitted) == 2
    assert not peer.closed
    assert caplog.messages == []


async def test_admin_connection_with_disallowed_certificate_name_is_closed() -> None:
    allowed = AllowedNames("storage.admin.allowedNames", ("operator",))
    connection = AdminConnection(
        ClusterIdentity(uuid.UUID(int=1), 3),
        cast(AdminHandler, None),
        lambda: "",
        NO_PULLS,
        allowed,
    )
    peer = NamedPeer()
    connection.ready(cast(FrameConnection, peer))
    connection.received([admin.encode(admin.MetricsRequest(1), VERSION)[HEAD_BYTES:]])
    assert peer.sent == [f"closed: {REFUSAL}".replace("storage.a", "storage.admin.a").encode()]
