"""Where each partition is: which server has it, at which generation. Pure; tells its followers."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import NamedTuple

from waltz.metadata.core.formats import OwnedPartition
from waltz.metadata.core.membership_steps import Endpoint


class Route(NamedTuple):
    """A partition's server, and the generation at which it has the partition."""

    endpoint: Endpoint
    generation: int


class Directory:
    """The routes, as the membership last said; followers are called after each change."""

    def __init__(self) -> None:
        self._routes: dict[int, Route] = {}
        self._followers: list[Callable[[], None]] = []

    def route(self, partition: int) -> Route | None:
        """Return where ``partition`` is, None while no server has it."""
        return self._routes.get(partition)

    def replace(self, endpoints: Mapping[Endpoint, tuple[OwnedPartition, ...]]) -> None:
        """Take a new state of the membership."""
        self._routes = {
            partition: Route(endpoint, generation)
            for endpoint, owned in endpoints.items()
            for partition, generation in owned
        }
        for follower in list(self._followers):
            follower()

    def follow(self, follower: Callable[[], None]) -> Callable[[], None]:
        """Call ``follower`` after each change; the function returned ends that."""
        self._followers.append(follower)
        return lambda: self._followers.remove(follower)
