"""Keep one connection to each server that owns a wanted partition. Touches the network.

A partition is wanted after a call of `Links.want`. A `LinkUser` is called when a wanted partition
gets a connection, and when it loses the connection.
"""

from __future__ import annotations

import asyncio
from itertools import count
from typing import NamedTuple, Protocol

from waltz.client.core.directory import Directory
from waltz.client.link import ServerLink
from waltz.metadata.core.membership_steps import Endpoint
from waltz.net import Dialer

_MOST_PROBLEMS = 3
"""The most servers without a connection, and partitions without a server, that an error names."""


class LinkUser(Protocol):
    """The callbacks of `Links`, which calls them on the event loop's thread."""

    def attached(self, partition: int, link: ServerLink, generation: int) -> None:
        """Use ``link``, which is connected to the server of ``partition``.

        Also called if the partition gets a new generation and stays at the same server.
        """

    def detached(self, partition: int) -> None:
        """Stop using the link of ``partition``.

        Its connection is lost, or the server does not own the partition any more. This may also be
        called for a partition that is not attached.
        """

    def received(self, link: ServerLink, bodies: list[bytes]) -> None:
        """Handle message bodies. If this raises MalformedMessage, the connection is closed."""


class _Place(NamedTuple):
    """The link to the present server of a partition, and the partition's generation there."""

    link: ServerLink
    generation: int


class Links:
    """The connections of one client id to the servers of its partitions.

    Implements `waltz.client.link.ServerLinkOwner`: the events of each link are passed on to
    ``user``. ``directory`` has the server that owns each partition.
    """

    def __init__(self, directory: Directory, dialer: Dialer, user: LinkUser) -> None:
        self._directory = directory
        self._dialer = dialer
        self._user = user
        self._seqs = count()
        """The numbers of the connections: a server serves the newest connection of a client id."""
        self._links: dict[Endpoint, ServerLink] = {}
        """The links to the servers in ``_placed``."""
        self._placed: dict[int, _Place] = {}
        """The places of the wanted partitions that have a server."""
        self._wanted: set[int] = set()
        """The partitions for which `want` was called."""
        self._ending: list[asyncio.Task[None]] = []
        """The tasks of stopped links, until they have ended."""
        self._unfollow = directory.follow(self._routes_changed)
        """Ends the calls of `_routes_changed`."""

    def want(self, partition: int) -> None:
        """Connect to the server of ``partition``, and to its new server after each move."""
        if partition not in self._wanted:
            self._wanted.add(partition)
            self._update_place(partition)

    def is_at(self, partition: int, link: ServerLink) -> bool:
        """Return whether ``link`` is that of the partition's present server.

        Messages about the partition on another link are out of date.
        """
        place = self._placed.get(partition)
        return place is not None and place.link is link

    def problems(self) -> str:
        """Return the end of an error's text: why wanted partitions may not be served, or "".

        It names the servers that are not connected, with the reasons, and the partitions without a
        server. A partition has no server if no server runs, or if ZooKeeper does not answer.
        """
        problems = [link.problem for link in self._links.values() if link.problem]
        text = f"; not connected: {'; '.join(problems[:_MOST_PROBLEMS])}" if problems else ""
        ownerless = sorted(self._wanted - self._placed.keys())[:_MOST_PROBLEMS]
        if ownerless:
            text += (
                f"; ZooKeeper has named no server for partition {', '.join(map(str, ownerless))}: "
                "check also that a majority of its servers is running"
            )
        return text

    def end(self) -> None:
        """Drop all partitions and stop all links. The user is not called any more."""
        self._wanted.clear()
        self._placed.clear()
        self._stop_unused()  # No partition is placed, so every link is unused.

    async def close(self) -> None:
        """Close all connections, without a call of the user. Call this once."""
        self._unfollow()
        self.end()
        await asyncio.gather(*self._ending, return_exceptions=True)

    def up(self, link: ServerLink) -> None:
        """See ServerLinkOwner."""
        for partition, generation in self._partitions_at(link):
            self._user.attached(partition, link, generation)

    def down(self, link: ServerLink) -> None:
        """See ServerLinkOwner."""
        for partition, _ in self._partitions_at(link):
            self._user.detached(partition)

    def received(self, link: ServerLink, bodies: list[bytes]) -> None:
        """See ServerLinkOwner."""
        self._user.received(link, bodies)

    def _partitions_at(self, link: ServerLink) -> list[tuple[int, int]]:
        """Return each partition whose present server is that of ``link``, with its generation."""
        return [
            (partition, place.generation)
            for partition, place in self._placed.items()
            if place.link is link
        ]

    def _routes_changed(self) -> None:
        """Move the wanted partitions to the links of their present servers."""
        for partition in list(self._wanted):
            self._update_place(partition)
        self._stop_unused()

    def _update_place(self, partition: int) -> None:
        """Move ``partition`` to the link of its present server, and call the user if necessary."""
        route = self._directory.route(partition)
        old = self._placed.get(partition)
        if route is None:
            if old is not None:
                del self._placed[partition]
                self._user.detached(partition)
            return
        link = self._links.get(route.endpoint)
        if link is None:
            link = ServerLink(route.endpoint, self, self._dialer, self._seqs)
            self._links[route.endpoint] = link
        new = _Place(link, route.generation)
        if old == new:
            return
        self._placed[partition] = new
        if old is not None and old.link is not link:
            self._user.detached(partition)
        # If the link is not connected yet, `up` calls the user later.
        if link.connected:
            self._user.attached(partition, link, route.generation)

    def _stop_unused(self) -> None:
        """Stop the links to servers that own no wanted partition any more."""
        used = {place.link.endpoint for place in self._placed.values()}
        self._ending = [task for task in self._ending if not task.done()]
        unused = [endpoint for endpoint in self._links if endpoint not in used]
        for endpoint in unused:
            self._ending.append(self._links.pop(endpoint).stop())
