"""A mount and its feed: answers of other sessions, gaps and the timeout."""

from __future__ import annotations

from typing import Any

import pytest

from waltz.client.core.feed import PartitionFeed
from waltz.client.core.mount import (
    AHEAD_CONFIRMATIONS,
    MOUNT_TIMEOUT_SECONDS,
    Phase,
    RequestIds,
)
from waltz.protocol.client_server import (
    FeedRequest,
    FeedSuspended,
    HighWaterMarkRequest,
    HighWaterMarkResponse,
    MountRequest,
    MountResponse,
    MountState,
)
from waltz.protocol.records import ReqId

CLIENT, GENERATION, VERSION = 9, 3, 5


def record(transaction_id: int) -> Any:
    return (1, 1, 0, 1, transaction_id, 0)


class Scene:
    """The feed of partition 0 after transaction 4."""

    def __init__(self) -> None:
        self.feed = PartitionFeed(RequestIds(CLIENT, 0), 4)
        self.feed.attach(GENERATION, 0, VERSION)
        self.session = self.feed.mount.request_id
        assert self.session is not None

    def mounted(self) -> None:
        assert self.session is not None
        self.feed.received(MountResponse(self.session, MountState.READY))

    def sent(self, kind: type) -> list[Any]:
        """Return the messages of one kind, and forget all messages so far."""
        return [m for m in self.feed.effects.take_messages() if isinstance(m, kind)]

    def fed(self, *ids: int) -> list[int]:
        self.feed.feed_received([record(transaction_id) for transaction_id in ids])
        return [found[4] for found in self.feed.effects.take_results()]


@pytest.fixture
def scene() -> Scene:
    return Scene()


def other(session: ReqId | None) -> ReqId:
    assert session is not None
    return ReqId(session.client_id, session.generation, session.partition, session.seq + 1)


def test_feed_yields_each_transaction_once_and_never_skips_one(scene: Scene) -> None:
    scene.mounted()
    assert scene.fed(4, 5, 5, 7, 6) == [5, 6]
    assert scene.feed.position == 6
    assert scene.fed(8) == []
    assert scene.fed(7, 8) == [7, 8]


def test_fetch_that_ended_in_another_session_is_ignored(scene: Scene) -> None:
    scene.mounted()
    scene.sent(FeedRequest)
    scene.feed.received(FeedSuspended(other(scene.session)))
    assert scene.sent(FeedRequest) == []
    assert scene.session is not None
    scene.feed.received(FeedSuspended(scene.session))
    assert scene.sent(FeedRequest) == [FeedRequest(scene.session, 4)]


def test_mount_response_of_another_session_mounts_nothing(scene: Scene) -> None:
    scene.feed.received(MountResponse(other(scene.session), MountState.READY))
    assert scene.sent(FeedRequest) == []
    scene.mounted()
    assert len(scene.sent(FeedRequest)) == 1


def test_mark_in_answer_to_another_request_confirms_nothing(scene: Scene) -> None:
    assert scene.session is not None
    scene.feed.received(MountResponse(scene.session, MountState.CLIENT_AHEAD))
    (request,) = scene.sent(HighWaterMarkRequest)
    for _ in range(AHEAD_CONFIRMATIONS):
        scene.feed.received(HighWaterMarkResponse(other(request.req_id), 2))
    assert scene.feed.log_mark_behind is None
    for _ in range(AHEAD_CONFIRMATIONS):
        scene.feed.received(HighWaterMarkResponse(request.req_id, 2))
    assert scene.feed.log_mark_behind is None, "a request is answered once"


def test_mount_that_feeds_transactions_does_not_time_out(scene: Scene) -> None:
    scene.sent(MountRequest)
    scene.feed.tick(0.0)
    scene.feed.tick(MOUNT_TIMEOUT_SECONDS - 0.1)
    assert scene.sent(MountRequest) == []
    scene.fed(5)
    scene.feed.tick(MOUNT_TIMEOUT_SECONDS)
    assert scene.sent(MountRequest) == []
    scene.feed.tick(2 * MOUNT_TIMEOUT_SECONDS)
    assert len(scene.sent(MountRequest)) == 1


@pytest.mark.parametrize("version", [4, 5])
def test_unanswered_mount_is_repeated_after_growing_times(scene: Scene, version: int) -> None:
    """At a server of 0.13.2 each repetition takes one of the 100 places of the partition's queue.

    On a slow connection an answer must come before the next request.
    """
    scene.feed.attach(GENERATION, 1, version)
    scene.sent(MountRequest)
    assert repetitions(scene, 0, 120)[:5] == [5, 16, 37, 78, 119]
    session = scene.feed.mount.request_id
    assert session is not None
    scene.feed.received(MountResponse(session, MountState.NOT_READY))
    assert repetitions(scene, 200, 208)[:2] == [201, 207], "an answer ends the growth"


def test_mount_whose_answers_are_late_is_mounted_by_one_of_them(scene: Scene) -> None:
    """An answer arrives 12 s after its request, for example behind a long answer."""
    scene.feed.attach(GENERATION, 1, 6)
    answers: dict[int, ReqId] = {}
    for second in range(60):
        for request in scene.sent(MountRequest):
            answers[second + 12] = request.req_id
        if (answered := answers.get(second)) is not None:
            scene.feed.received(MountResponse(answered, MountState.READY))
        scene.feed.tick(float(second))
    assert scene.feed.mount.phase is Phase.MOUNTED


def repetitions(scene: Scene, begin: int, end: int) -> list[int]:
    """Tick once a second; return the seconds at which a mount request is sent."""
    sent = []
    for second in range(begin, end):
        scene.feed.tick(float(second))
        if scene.sent(MountRequest):
            sent.append(second)
    return sent
