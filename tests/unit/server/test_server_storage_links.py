"""Test links to storages over sockets: they reconnect, are shared, and close when one hangs."""

from __future__ import annotations

import asyncio
import uuid
from collections.abc import AsyncIterator, Callable
from typing import Any

import pytest

from tests.support.eventually import eventually
from tests.support.fake_storage import IDENTITY, FakeStorage
from tests.support.scripted_storages import ScriptedStorage
from waltz.net import PLAINTEXT
from waltz.protocol import STORAGE
from waltz.protocol import storage as st
from waltz_server.shell.storage_links import ExpectedCluster, StorageLink, StorageLinks

_POLL_SECONDS = 0.002


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


def request(session: int = 1, partition: int = 0) -> st.MaxTransactionIdRequest:
    return st.MaxTransactionIdRequest(session, -2, partition)


@pytest.fixture
async def storage() -> AsyncIterator[FakeStorage]:
    storage = FakeStorage()
    storage.start()
    yield storage
    await storage.stop()


@pytest.fixture
async def links() -> AsyncIterator[StorageLinks]:
    links = StorageLinks(PLAINTEXT, IDENTITY)
    yield links
    await links.close()


@pytest.fixture
async def pass_time(monkeypatch: pytest.MonkeyPatch) -> Callable[[float], None]:
    """Make the event loop's clock jump."""
    loop, ahead = asyncio.get_running_loop(), 0.0
    real = loop.time

    def jump(seconds: float) -> None:
        nonlocal ahead
        ahead += seconds

    monkeypatch.setattr(loop, "time", lambda: real() + ahead)
    return jump


@pytest.fixture
async def pauses(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """The pauses of the links, which take no time."""
    taken: list[float] = []
    real = asyncio.sleep

    async def pause(seconds: float) -> None:
        if seconds > _POLL_SECONDS:
            taken.append(seconds)
        await real(min(seconds, _POLL_SECONDS))

    monkeypatch.setattr(asyncio, "sleep", pause)
    return taken


async def up(links: StorageLinks, storage: FakeStorage) -> User:
    user = User()
    user.connect(links, frozenset({storage.name}))
    await eventually(lambda: user.events == ["up"])
    return user


async def answered(user: User, count: int) -> None:
    await eventually(lambda: len(user.answers) == count)


async def test_request_is_numbered_and_answered(storage: FakeStorage, links: StorageLinks) -> None:
    user = await up(links, storage)
    sent = request()
    user.send(storage.name, sent)
    user.send(storage.name, request(partition=1))
    await eventually(lambda: len(user.answers) == 2)
    assert user.events[1] == (sent, st.MaxTransactionIdResponse(1, 0, 0, -1))
    assert [r.seq_num for r in storage.requests] == [-1, 0, 1]


async def test_request_is_converted_for_an_older_storage_and_its_answer_is_matched(
    links: StorageLinks,
) -> None:
    storage = FakeStorage(STORAGE.limited_to(0))
    storage.start()
    user = await up(links, storage)
    storage.partitions[0] = ScriptedStorage(storage.name, last=5, session=1)
    sent = st.BoundedRecordListRequest(1, -2, 0, 2, 3, 1 << 20)
    user.send(storage.name, sent)
    await answered(user, 1)
    assert storage.requests[-1] == st.RecordListRequest(1, 0, 0, 2, 3)
    request, response = user.events[-1]
    assert request is sent
    assert [r.transaction_id for r in response.records] == [2, 3, 4]
    await storage.stop()


async def test_partitions_share_one_connection_until_the_last_releases_it(
    storage: FakeStorage, links: StorageLinks
) -> None:
    first, second = await up(links, storage), User()
    second.connect(links, frozenset({storage.name}))
    assert second.events == ["up"], "it was up already"
    assert storage.accepted == 1
    first.connect(links, frozenset())
    second.send(storage.name, request())
    await eventually(lambda: second.answers)
    second.connect(links, frozenset())
    await eventually(lambda: not storage.connections)
    assert first.events == ["up"]


async def test_lost_connection_answers_none_reports_down_and_is_dialed_again(
    storage: FakeStorage, links: StorageLinks
) -> None:
    user = await up(links, storage)
    storage.silent = True
    first, second = request(), request(2)
    user.send(storage.name, first)
    user.send(storage.name, second)
    await eventually(lambda: len(storage.requests) == 3)
    storage.cut()
    await eventually(lambda: user.events.count("up") == 2)
    assert user.events == ["up", (first, None), (second, None), "down", "up"]


class Requester(User):
    """Sends a request as soon as a connection is open."""

    def storage_up(self, storage: str) -> None:
        super().storage_up(storage)
        self.send(storage, request())


async def test_storage_that_accepts_and_drops_is_dialed_with_growing_delays(
    storage: FakeStorage, links: StorageLinks, pauses: list[float]
) -> None:
    storage.dropping = True
    user = Requester()
    user.connect(links, frozenset({storage.name}))
    await eventually(lambda: user.events.count("up") == 8)
    assert pauses[:7] == [0.05, 0.1, 0.2, 0.4, 0.8, 1.0, 1.0]
    storage.dropping = False
    await eventually(lambda: user.answers[-1:] != [None])
    storage.cut()
    before = len(pauses)
    await eventually(lambda: len(pauses) > before)
    assert pauses[before] == 0.05, "it has answered"


async def test_failed_redial_does_not_report_down_again(
    storage: FakeStorage,
    links: StorageLinks,
    pauses: list[float],
    caplog: pytest.LogCaptureFixture,
) -> None:
    user = await up(links, storage)
    storage.mute = True
    storage.cut()
    await eventually(lambda: user.events == ["up", "down"])
    for _ in range(3):
        await eventually(lambda: storage.connections)
        storage.cut()
    await eventually(lambda: storage.connections)
    assert user.events == ["up", "down"]
    assert caplog.text.count("connection lost") == 1


async def test_request_while_the_link_is_down_is_answered_with_none(
    storage: FakeStorage, links: StorageLinks
) -> None:
    user = await up(links, storage)
    await storage.stop()
    await eventually(lambda: user.events[-1] == "down")
    user.send(storage.name, request())
    assert user.answers == [], "never from inside the call"
    await eventually(lambda: user.answers == [None])


async def test_storage_that_starts_later_is_connected(links: StorageLinks) -> None:
    storage, user = FakeStorage(), User()
    storage.start()
    await storage.stop()
    user.connect(links, frozenset({storage.name}))
    user.send(storage.name, request())
    await eventually(lambda: user.answers == [None])
    storage.start()
    await eventually(lambda: user.events[-1] == "up")
    await storage.stop()


async def test_storage_that_leaves_a_request_unanswered_is_disconnected(
    storage: FakeStorage,
    links: StorageLinks,
    pass_time: Callable[[float], None],
    caplog: pytest.LogCaptureFixture,
) -> None:
    user = await up(links, storage)
    storage.silent = True
    sent = request()
    user.send(storage.name, sent)
    await eventually(lambda: len(storage.requests) == 2)
    pass_time(9.0)
    user.send(storage.name, request(2))
    await eventually(lambda: len(storage.requests) == 3)
    assert user.events == ["up"]
    pass_time(1.5)
    await eventually(lambda: "down" in user.events)
    assert user.events[1] == (sent, None)
    assert f"{storage.name}: no answer for" in caplog.text
    storage.silent = False
    await eventually(lambda: user.events[-1] == "up")


async def test_answered_requests_never_close_the_link(
    storage: FakeStorage, links: StorageLinks, pass_time: Callable[[float], None]
) -> None:
    user = await up(links, storage)
    for count in range(1, 6):
        user.send(storage.name, request())
        await answered(user, count)
        pass_time(7.0)
    assert storage.accepted == 1
    assert "down" not in user.events


async def test_storage_of_another_cluster_is_refused_and_logged_once(
    storage: FakeStorage, caplog: pytest.LogCaptureFixture
) -> None:
    links = StorageLinks(PLAINTEXT, ExpectedCluster(uuid.UUID(int=8), 2))
    user = User()
    user.connect(links, frozenset({storage.name}))
    await eventually(lambda: storage.accepted >= 3)
    assert user.events == []
    assert caplog.text.count("the cluster key does not match") == 1
    await links.close()


async def test_check_dials_every_storage_and_returns_which_answer(
    storage: FakeStorage, links: StorageLinks
) -> None:
    gone = FakeStorage()
    gone.start()
    await gone.stop()
    sent = frozenset({storage.name, gone.name})
    assert await links.check(sent) == {storage.name: True, gone.name: False}
    assert await links.check(frozenset()) == {}
    await eventually(lambda: not storage.connections)


async def test_dropping_a_link_while_it_opens_leaves_no_connection(
    storage: FakeStorage, links: StorageLinks
) -> None:
    storage.mute = True
    user = User()
    user.connect(links, frozenset({storage.name}))
    await eventually(lambda: storage.requests)
    user.connect(links, frozenset())
    await eventually(lambda: not storage.connections)
    assert user.events == []


async def test_close_answers_pending_requests(storage: FakeStorage, links: StorageLinks) -> None:
    user = await up(links, storage)
    storage.silent = True
    user.send(storage.name, request())
    await eventually(lambda: len(storage.requests) == 2)
    await links.close()
    assert user.answers == [None]
    await eventually(lambda: not storage.connections)
