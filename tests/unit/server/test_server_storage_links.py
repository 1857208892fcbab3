"""Links to real storages on virtual time: they reconnect, are shared, and close when one hangs."""

from __future__ import annotations

import asyncio
import uuid
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from itertools import pairwise
from typing import Any

import pytest

from tests.support.eventually import eventually
from tests.support.failing_decoders import errors_of_event_loop, fails_for
from tests.support.virtual_time import on_virtual_time
from waltz.metadata.cluster import Cluster
from waltz.net import PLAINTEXT
from waltz.protocol import ADMIN, STORAGE
from waltz.protocol import storage as st
from waltz.testing import FrameFault, InProcessCluster
from waltz.testing.nodes import ROOT
from waltz_server.shell.storage_links import ExpectedCluster, StorageLink, StorageLinks

HOST = "server under test"
SESSION = 100
"""A session after those of the cluster's own server."""


class User:
    """Records the events of the link."""

    def __init__(self) -> None:
        self.events: list[Any] = []
        self._links: dict[str, StorageLink] = {}

    def connect(self, links: StorageLinks, storages: frozenset[str]) -> None:
        self._links = links.connect(self, storages)

    def send(self, storage: str, request: st.Request) -> None:
        self._links[storage].send_request(self, request)

    def storage_up(self, storage: str) -> None:
        self.events.append("up")

    def storage_down(self, storage: str) -> None:
        self.events.append("down")

    def answered(self, storage: str, request: st.Request, response: Any, elapsed_ms: float) -> None:
        assert elapsed_ms >= 0
        self.events.append((request, response))

    @property
    def answers(self) -> list[Any]:
        return [entry[1] for entry in self.events if isinstance(entry, tuple)]


def request(session: int = SESSION, partition: int = 0) -> st.MaxTransactionIdRequest:
    return st.MaxTransactionIdRequest(session, -2, partition)


def no_fault(request: Any) -> FrameFault | None:
    return None


def silent(request: Any) -> FrameFault | None:
    """Leave requests unanswered, except the opening of a connection."""
    return None if isinstance(request, st.OpenRequest) else FrameFault.DROP


def mute(request: Any) -> FrameFault | None:
    """Leave even the opening of a connection unanswered."""
    return FrameFault.DROP


def dropping(request: Any) -> FrameFault | None:
    """Lose the connection at its first request after the opening."""
    return None if isinstance(request, st.OpenRequest) else FrameFault.CUT


class Scene:
    """The links of one server, and a storage whose requests are recorded and may get faults."""

    def __init__(self, cluster: InProcessCluster, identity: ExpectedCluster) -> None:
        self.cluster = cluster
        self.identity = identity
        self.network = cluster.network.host(HOST)
        self.links = StorageLinks(PLAINTEXT, identity, network=self.network)
        self.storage = cluster.storages[0]
        self.name = self.storage.address
        self.requests: list[Any] = []
        self.opened_at: list[float] = []
        self.fault: Callable[[Any], FrameFault | None] = no_fault
        cluster.network.frame_rules[HOST, self.storage.host] = self._rule

    def _rule(self, request: Any) -> FrameFault | None:
        self.requests.append(request)
        if isinstance(request, st.OpenRequest):
            self.opened_at.append(asyncio.get_running_loop().time())
        return self.fault(request)

    @property
    def connections(self) -> int:
        return self.cluster.network.connections(HOST, self.storage.host)

    def cut(self) -> None:
        self.cluster.network.cut(HOST, self.storage.host)

    async def up(self) -> User:
        user = User()
        user.connect(self.links, frozenset({self.name}))
        await eventually(lambda: user.events == ["up"])
        return user


@asynccontextmanager
async def new_scene(*, appends: int = 0, old: bool = False) -> AsyncIterator[Scene]:
    """Start storages that hold ``appends`` transactions; ``old`` ones are of Waltz 0.13.2."""
    cluster = InProcessCluster(partitions=2)
    if old:
        for storage in cluster.storages:
            storage.versions = (STORAGE.limited_to(0), ADMIN)
    async with cluster:
        async with cluster.connect() as client:
            for number in range(appends):
                await client.append(0, b"%d" % number)
        await cluster.kill_server()
        params = await Cluster(cluster.zookeeper.connect(), ROOT).store_params()
        scene = Scene(cluster, ExpectedCluster(params.key, params.num_partitions))
        yield scene
        await scene.links.close()


async def answered(user: User, count: int) -> None:
    await eventually(lambda: len(user.answers) == count)


@on_virtual_time
async def test_request_is_numbered_and_answered() -> None:
    async with new_scene() as scene:
        user = await scene.up()
        sent = request()
        user.send(scene.name, sent)
        user.send(scene.name, request(partition=1))
        await answered(user, 2)
        assert user.events[1] == (sent, st.MaxTransactionIdResponse(SESSION, 0, 0, -1))
        assert [r.seq_num for r in scene.requests] == [-1, 0, 1]


@on_virtual_time
async def test_request_is_converted_for_an_older_storage_and_its_answer_is_matched() -> None:
    async with new_scene(appends=6, old=True) as scene:
        user = await scene.up()
        sent = st.BoundedRecordListRequest(SESSION, -2, 0, 2, 3, 1 << 20)
        user.send(scene.name, sent)
        await answered(user, 1)
        assert scene.requests[-1] == st.RecordListRequest(SESSION, 0, 0, 2, 3)
        request, response = user.events[-1]
        assert request is sent
        assert [r.transaction_id for r in response.records] == [2, 3, 4]


@on_virtual_time
async def test_list_that_ends_the_connection_to_an_older_storage_is_shortened() -> None:
    """The answer of a storage of 0.13.2 may be longer than the longest frame."""
    async with new_scene(appends=6, old=True) as scene:
        user = await scene.up()
        sent = st.BoundedRecordListRequest(SESSION, -2, 0, 0, 500, 1 << 20)
        scene.fault = dropping
        user.send(scene.name, sent)
        await answered(user, 1)
        assert scene.requests[-1].max_records == 20
        scene.fault = no_fault
        await eventually(lambda: user.events[-1] == "up")
        user.send(scene.name, sent)
        await answered(user, 2)
        assert scene.requests[-1].max_records == 2
        assert [r.transaction_id for r in user.answers[-1].records] == [0, 1]


@on_virtual_time
async def test_partitions_share_one_connection_until_the_last_releases_it() -> None:
    async with new_scene() as scene:
        first, second = await scene.up(), User()
        second.connect(scene.links, frozenset({scene.name}))
        assert second.events == ["up"], "it was up already"
        assert len(scene.opened_at) == 1
        first.connect(scene.links, frozenset())
        second.send(scene.name, request())
        await eventually(lambda: second.answers)
        assert second.answers[0] is not None, "the link is still open"
        second.connect(scene.links, frozenset())
        await eventually(lambda: not scene.connections)
        assert first.events == ["up"]


@on_virtual_time
async def test_lost_connection_answers_none_reports_down_and_is_dialed_again() -> None:
    async with new_scene() as scene:
        user = await scene.up()
        scene.fault = silent
        first, second = request(), request(SESSION + 1)
        user.send(scene.name, first)
        user.send(scene.name, second)
        await eventually(lambda: len(scene.requests) == 3)
        scene.cut()
        await eventually(lambda: user.events.count("up") == 2)
        assert user.events == ["up", (first, None), (second, None), "down", "up"]


@on_virtual_time
async def test_decoder_error_at_an_answer_closes_only_the_connection(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """If it ended the server, the same answer could end the next owner of the partition, too."""
    async with new_scene() as scene:
        unexpected = errors_of_event_loop()
        user = await scene.up()
        sent = request()
        with monkeypatch.context() as broken:
            broken.setattr(st, "decode", fails_for(st.decode, st.MaxTransactionIdResponse))
            user.send(scene.name, sent)
            await eventually(lambda: user.events.count("up") == 2)
        assert user.events == ["up", (sent, None), "down", "up"]
        user.send(scene.name, request())
        await answered(user, 2)
        assert user.answers[1] is not None
    assert unexpected == []
    assert "IndexError" in caplog.text


class Requester(User):
    """Sends a request as soon as a connection is open."""

    def storage_up(self, storage: str) -> None:
        super().storage_up(storage)
        self.send(storage, request())


@on_virtual_time
async def test_storage_that_accepts_and_drops_is_dialed_with_growing_delays() -> None:
    async with new_scene() as scene:
        scene.fault = dropping
        user = Requester()
        user.connect(scene.links, frozenset({scene.name}))
        await eventually(lambda: user.events.count("up") == 8)
        pauses = [later - earlier for earlier, later in pairwise(scene.opened_at)]
        assert pauses == pytest.approx([0.05, 0.1, 0.2, 0.4, 0.8, 1.0, 1.0])
        scene.fault = no_fault
        await eventually(lambda: user.answers[-1:] != [None])
        scene.cut()
        begun, opened = asyncio.get_running_loop().time(), len(scene.opened_at)
        await eventually(lambda: len(scene.opened_at) > opened)
        assert scene.opened_at[-1] - begun == pytest.approx(0.05), "it has answered"


@on_virtual_time
async def test_failed_redial_does_not_report_down_again(caplog: pytest.LogCaptureFixture) -> None:
    async with new_scene() as scene:
        caplog.clear()
        user = await scene.up()
        scene.fault = mute
        scene.cut()
        await eventually(lambda: user.events == ["up", "down"])
        for _ in range(3):
            await eventually(lambda: scene.connections)
            scene.cut()
        await eventually(lambda: scene.connections)
        assert user.events == ["up", "down"]
        assert caplog.text.count("connection lost") == 1


@on_virtual_time
async def test_request_while_the_link_is_down_is_answered_with_none() -> None:
    async with new_scene() as scene:
        user = await scene.up()
        await scene.cluster.kill_storage(0)
        await eventually(lambda: user.events[-1] == "down")
        user.send(scene.name, request())
        assert user.answers == [], "never from inside the call"
        await eventually(lambda: user.answers == [None])


@on_virtual_time
async def test_storage_that_starts_later_is_connected() -> None:
    async with new_scene() as scene:
        await scene.cluster.kill_storage(0)
        user = User()
        user.connect(scene.links, frozenset({scene.name}))
        user.send(scene.name, request())
        await eventually(lambda: user.answers == [None])
        await scene.cluster.start_storage(0)
        await eventually(lambda: user.events[-1] == "up")


@on_virtual_time
async def test_storage_that_leaves_a_request_unanswered_is_disconnected(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async with new_scene() as scene:
        user = await scene.up()
        scene.fault = silent
        sent = request()
        user.send(scene.name, sent)
        await asyncio.sleep(9.0)
        user.send(scene.name, request(SESSION + 1))
        await asyncio.sleep(0.9)
        assert len(scene.requests) == 3
        assert user.events == ["up"]
        await asyncio.sleep(0.2)
        assert "down" in user.events
        assert user.events[1] == (sent, None)
        assert f"{scene.name}: no answer for" in caplog.text
        scene.fault = no_fault
        await eventually(lambda: user.events[-1] == "up")


@on_virtual_time
async def test_requests_of_a_lost_connection_do_not_close_the_next_one() -> None:
    async with new_scene() as scene:
        user = await scene.up()
        scene.fault = silent
        for _ in range(5):
            user.send(scene.name, request())
        await eventually(lambda: len(scene.requests) == 6)
        scene.fault = no_fault
        scene.cut()
        await answered(user, 5)
        await eventually(lambda: user.events[-1] == "up")
        await asyncio.sleep(5.0)
        user.send(scene.name, request())
        await asyncio.sleep(20.0)
        assert user.answers[5:] != [None]
        assert len(scene.opened_at) == 2


@on_virtual_time
async def test_storage_that_hangs_after_its_first_answers_is_disconnected() -> None:
    """The first check of the deadline finds only requests that were sent after it was set."""
    async with new_scene() as scene:
        user = await scene.up()
        user.send(scene.name, request())
        await answered(user, 1)
        await asyncio.sleep(5.0)
        scene.fault = silent
        user.send(scene.name, request())
        await asyncio.sleep(9.0)
        assert "down" not in user.events
        await asyncio.sleep(1.1)
        assert "down" in user.events


@on_virtual_time
async def test_storage_that_hangs_after_a_pause_without_requests_is_disconnected() -> None:
    async with new_scene() as scene:
        user = await scene.up()
        user.send(scene.name, request())
        await answered(user, 1)
        await asyncio.sleep(30.0)
        scene.fault = silent
        user.send(scene.name, request())
        await asyncio.sleep(11.0)
        assert "down" in user.events


@on_virtual_time
async def test_answered_requests_never_close_the_link() -> None:
    async with new_scene() as scene:
        user = await scene.up()
        for count in range(1, 6):
            user.send(scene.name, request())
            await answered(user, count)
            await asyncio.sleep(7.0)
        assert len(scene.opened_at) == 1
        assert "down" not in user.events


@on_virtual_time
async def test_storage_of_another_cluster_is_refused_and_logged_once(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async with new_scene() as scene:
        other = ExpectedCluster(uuid.UUID(int=8), 2)
        links, user = StorageLinks(PLAINTEXT, other, network=scene.network), User()
        user.connect(links, frozenset({scene.name}))
        await eventually(lambda: len(scene.opened_at) >= 3)
        assert user.events == []
        assert caplog.text.count("Provided cluster key is inconsistent") == 1
        await links.close()


@on_virtual_time
async def test_check_dials_every_storage_and_returns_which_answer() -> None:
    async with new_scene() as scene:
        await scene.cluster.kill_storage(1)
        gone = scene.cluster.storages[1].address
        sent = frozenset({scene.name, gone})
        assert await scene.links.check(sent) == {scene.name: True, gone: False}
        assert await scene.links.check(frozenset()) == {}
        await eventually(lambda: not scene.connections)


@on_virtual_time
async def test_dropping_a_link_while_it_opens_leaves_no_connection() -> None:
    async with new_scene() as scene:
        scene.fault = mute
        user = User()
        user.connect(scene.links, frozenset({scene.name}))
        await eventually(lambda: scene.requests)
        user.connect(scene.links, frozenset())
        await eventually(lambda: not scene.connections)
        assert user.events == []


@on_virtual_time
async def test_close_answers_pending_requests() -> None:
    async with new_scene() as scene:
        user = await scene.up()
        scene.fault = silent
        user.send(scene.name, request())
        await eventually(lambda: len(scene.requests) == 2)
        await scene.links.close()
        assert user.answers == [None]
        await eventually(lambda: not scene.connections)


@on_virtual_time
async def test_link_to_a_storage_that_vanished_is_closed_at_the_answers_deadline() -> None:
    """The network between the two drops everything, and neither side gets an end of connection."""
    async with new_scene() as scene:
        user = await scene.up()
        clock = asyncio.get_running_loop().time
        scene.cluster.network.partition(HOST, scene.storage.host)
        begun, sent = clock(), request()
        user.send(scene.name, sent)
        await eventually(lambda: "down" in user.events)
        assert clock() - begun == pytest.approx(10.0, abs=0.1)
        assert user.events == ["up", (sent, None), "down"]
        scene.cluster.network.heal()
        await eventually(lambda: user.events[-1] == "up")


@on_virtual_time
async def test_close_cancels_the_check_of_the_answers_deadline(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The timer would keep the closed link, and what its users hold, for the rest of its time."""
    async with new_scene() as scene:
        checks: list[StorageLink] = []
        monkeypatch.setattr(StorageLink, "_check_deadline", lambda link: checks.append(link))
        user = await scene.up()
        scene.fault = silent
        user.send(scene.name, request())
        await eventually(lambda: len(scene.requests) == 2)
        await scene.links.close()
        await asyncio.sleep(30.0)
        assert checks == []


class _Failing(User):
    """A partition with a bug."""

    def storage_up(self, storage: str) -> None:
        raise RuntimeError("a bug")


@on_virtual_time
async def test_bug_of_a_partition_in_the_task_of_a_link_reaches_the_event_loop_at_once() -> None:
    """There it ends the server. Otherwise the link would stay down without a word."""
    async with new_scene() as scene:
        unexpected = errors_of_event_loop()
        links, user = scene.links, _Failing()
        user.connect(links, frozenset({scene.name}))
        await eventually(lambda: links._links[scene.name]._link.task.done())
        await asyncio.sleep(0)
        assert [str(each["exception"]) for each in unexpected] == ["a bug"]
