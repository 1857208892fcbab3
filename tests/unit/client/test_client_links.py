"""Where the links put each partition, and what they tell their user."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any, cast

import pytest

from waltz.client import links as links_module
from waltz.client.core.directory import Directory, Route
from waltz.client.link import ServerLink
from waltz.client.links import Links
from waltz.metadata.core.membership_steps import Endpoint
from waltz.net import Dialer

A: Endpoint = ("a", 1)
B: Endpoint = ("b", 1)


class Routes:
    """A directory whose routes a test sets."""

    def __init__(self) -> None:
        self.routes: dict[int, Route] = {}
        self.followers: list[Callable[[], None]] = []

    def route(self, partition: int) -> Route | None:
        return self.routes.get(partition)

    def follow(self, follower: Callable[[], None]) -> Callable[[], None]:
        self.followers.append(follower)
        return lambda: self.followers.remove(follower)

    def set(self, **routes: Route | None) -> None:
        """Set the routes of p0, p1, …, and report the change."""
        for name, route in routes.items():
            partition = int(name.removeprefix("p"))
            if route is None:
                self.routes.pop(partition, None)
            else:
                self.routes[partition] = route
        for follower in list(self.followers):
            follower()


class Link:
    """A link that is up when the test says so."""

    made: list[Link]

    def __init__(self, endpoint: Endpoint, owner: Links, dialer: Dialer, seqs: Any) -> None:
        self.endpoint = endpoint
        self.owner = owner
        self.seq = next(seqs)
        self.connected = False
        self.problem = ""
        self.stopping: asyncio.Event | None = None
        self.ended = False
        Link.made.append(self)

    def rise(self) -> None:
        self.connected = True
        self.owner.up(cast(ServerLink, self))

    def fall(self) -> None:
        self.connected = False
        self.owner.down(cast(ServerLink, self))

    def stop(self) -> asyncio.Task[None]:
        self.stopping = asyncio.Event()
        return asyncio.get_running_loop().create_task(self._end())

    async def _end(self) -> None:
        assert self.stopping is not None
        await self.stopping.wait()
        self.ended = True


class User:
    def __init__(self) -> None:
        self.calls: list[Any] = []

    def attached(self, partition: int, link: Link, generation: int) -> None:
        self.calls.append(("attached", partition, link.endpoint[0], generation))

    def detached(self, partition: int) -> None:
        self.calls.append(("detached", partition))

    def received(self, link: Link, bodies: list[bytes]) -> None:
        self.calls.append(("received", link.endpoint[0], bodies))

    def take(self) -> list[Any]:
        calls, self.calls = self.calls, []
        return calls


class Scene:
    def __init__(self) -> None:
        self.routes, self.user = Routes(), User()
        self.links = Links(cast(Directory, self.routes), cast(Dialer, None), cast(Any, self.user))

    def link(self, endpoint: Endpoint) -> Link:
        return next(each for each in reversed(Link.made) if each.endpoint == endpoint)


@pytest.fixture
async def scene(monkeypatch: pytest.MonkeyPatch) -> Scene:
    Link.made = []
    monkeypatch.setattr(links_module, "ServerLink", Link)
    return Scene()


async def test_partition_is_attached_when_its_link_is_up(scene: Scene) -> None:
    scene.routes.set(p0=Route(A, 3), p1=Route(A, 4))
    scene.links.want(0)
    scene.links.want(0)
    assert len(Link.made) == 1
    assert scene.user.take() == []
    scene.link(A).rise()
    assert scene.user.take() == [("attached", 0, "a", 3)]
    scene.links.want(1)
    assert scene.user.take() == [("attached", 1, "a", 4)], "the link is up already"
    assert len(Link.made) == 1
    scene.link(A).fall()
    assert scene.user.take() == [("detached", 0), ("detached", 1)]


async def test_partition_that_is_not_wanted_is_not_placed(scene: Scene) -> None:
    scene.routes.set(p0=Route(A, 3))
    assert Link.made == []
    assert not scene.links.is_at(0, cast(ServerLink, None))


async def test_problems_name_the_partitions_without_a_server(scene: Scene) -> None:
    """Otherwise an error blames the servers while ZooKeeper does not answer."""
    assert scene.links.problems() == ""
    scene.links.want(0)
    expected = "; ZooKeeper has named no server for partition 0: check also that a majority"
    assert scene.links.problems().startswith(expected)
    scene.routes.set(p0=Route(A, 7))
    assert scene.links.problems() == ""


async def test_partition_follows_its_server(scene: Scene) -> None:
    scene.routes.set(p0=Route(A, 3), p1=Route(A, 3))
    for partition in (0, 1):
        scene.links.want(partition)
    first = scene.link(A)
    first.rise()
    scene.user.take()
    scene.routes.set(p0=Route(B, 4))
    assert scene.user.take() == [("detached", 0)]
    second = scene.link(B)
    assert scene.links.is_at(0, cast(ServerLink, second))
    assert not scene.links.is_at(0, cast(ServerLink, first))
    second.rise()
    assert scene.user.take() == [("attached", 0, "b", 4)]
    first.fall()
    assert scene.user.take() == [("detached", 1)]
    assert first.stopping is None, "partition 1 uses the link"
    assert (first.seq, second.seq) == (0, 1)


async def test_new_generation_on_same_server_reattaches_the_partition(scene: Scene) -> None:
    scene.routes.set(p0=Route(A, 3))
    scene.links.want(0)
    scene.link(A).rise()
    scene.user.take()
    scene.routes.set(p0=Route(A, 5))
    assert scene.user.take() == [("attached", 0, "a", 5)], "without an end of the connection"
    scene.routes.set()
    assert scene.user.take() == []


async def test_partition_without_a_server_is_detached_and_its_link_stops(scene: Scene) -> None:
    scene.routes.set(p0=Route(A, 3))
    scene.links.want(0)
    first = scene.link(A)
    first.rise()
    scene.user.take()
    scene.routes.set(p0=None)
    assert scene.user.take() == [("detached", 0)]
    assert first.stopping is not None
    scene.routes.set(p0=Route(A, 4))
    assert scene.link(A) is not first
    scene.link(A).rise()
    assert scene.user.take() == [("attached", 0, "a", 4)]


async def test_ended_links_call_their_user_no_more_and_close_waits_for_them(scene: Scene) -> None:
    scene.routes.set(p0=Route(A, 3))
    scene.links.want(0)
    link = scene.link(A)
    link.rise()
    scene.user.take()
    scene.links.end()
    assert link.stopping is not None
    link.fall()
    scene.routes.set(p0=Route(B, 4))
    assert scene.user.take() == []
    assert len(Link.made) == 1
    closing = asyncio.create_task(scene.links.close())
    await asyncio.sleep(0)
    assert scene.routes.followers == []
    assert not closing.done()
    link.stopping.set()
    await closing
    assert link.ended


async def test_close_without_end_stops_the_links(scene: Scene) -> None:
    scene.routes.set(p0=Route(A, 3))
    scene.links.want(0)
    closing = asyncio.create_task(scene.links.close())
    await asyncio.sleep(0)
    stopping = scene.link(A).stopping
    assert stopping is not None
    stopping.set()
    await closing
    assert scene.user.take() == []
