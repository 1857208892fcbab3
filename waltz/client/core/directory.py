"""Which server owns each partition, and in which generation. Pure."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import NamedTuple

from waltz.metadata.core.formats import OwnedPartition
from waltz.metadata.core.membership_steps import Endpoint


class Route(NamedTuple):
    """The server that owns a partition, and the generation of the partition."""

    endpoint: Endpoint
    generation: int


class Directory:
    """The routes of all partitions.

    `follow` registers a function that is called after each `replace`.
    """

    def __init__(self) -> None:
        self._routes: dict[int, Route] = {}
        self._followers: list[Callable[[], None]] = []

    def route(self, partition: int) -> Route | None:
        """Return the route of ``partition``, None while no server owns it."""
        return self._routes.get(partition)

    def replace(self, endpoints: Mapping[Endpoint, tuple[OwnedPartition, ...]]) -> None:
        """Replace all routes. ``endpoints`` maps each server to the partitions that it owns."""
        self._routes = {
            partition: Route(endpoint, generation)
            for endpoint, owned in endpoints.items()
            for partition, generation in owned
        }
        for follower in list(self._followers):
            follower()

    def follow(self, follower: Callable[[], None]) -> Callable[[], None]:
        """Call ``follower`` after each `replace`, until the returned function is called."""
        self._followers.append(follower)
        return lambda: self._followers.remove(follower)
