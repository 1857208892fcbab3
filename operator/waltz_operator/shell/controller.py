"""When clusters are looked at: after every hint, and again in time. Clock and tasks, no network.

Hints are only that: a look reads everything anew, so one that is lost costs time, nothing else. A
cluster is looked at by one task, so that two looks never overlap.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field

from waltz.net.core.backoff import Backoff
from waltz.runtime.process import watched
from waltz_operator.shell.kube_api import KubeError

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Seen:
    """What a look has found: whether the cluster is Ready; in how many seconds to look again."""

    again: float
    ready: bool


Look = Callable[[str, str], Awaitable[Seen | None]]
"""Looks at a cluster; returns None when it is gone."""

_BACKOFF = Backoff(1.0, 30.0)


@dataclass(slots=True)
class Measures:
    """What is counted of looks."""

    looks: int = 0
    failures: int = 0
    seconds: float = 0.0


@dataclass(slots=True)
class _Cluster:
    hinted: asyncio.Event = field(default_factory=asyncio.Event)
    task: asyncio.Task[None] | None = None
    seen: Seen | None = None


class Lookout:
    """Looks at all clusters that it was told of, until they are gone."""

    def __init__(self, look: Look) -> None:
        self._look = look
        self._clusters: dict[tuple[str, str], _Cluster] = {}
        self.measures = Measures()

    @property
    def clusters(self) -> int:
        """How many clusters there are."""
        return len(self._clusters)

    @property
    def ready(self) -> dict[tuple[str, str], bool]:
        """Whether a cluster was Ready when last looked at, by namespace and name."""
        return {
            which: known.seen.ready
            for which, known in self._clusters.items()
            if known.seen is not None
        }

    def hint(self, namespace: str, name: str) -> None:
        """Look at a cluster soon: something about it may have changed."""
        which = (namespace, name)
        known = self._clusters.get(which)
        if known is None:
            known = self._clusters[which] = _Cluster()
            known.task = watched(asyncio.ensure_future(self._keep_looking(which, known)))
        known.hinted.set()

    async def close(self) -> None:
        """Stop looking; a look that has begun is broken off."""
        tasks = [known.task for known in self._clusters.values() if known.task is not None]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    async def _keep_looking(self, which: tuple[str, str], known: _Cluster) -> None:
        failures = 0
        clock = asyncio.get_running_loop().time
        while True:
            known.hinted.clear()
            begun = clock()
            try:
                known.seen, failures = await self._look(*which), 0
                again = None if known.seen is None else known.seen.again
            except KubeError as problem:
                again = _BACKOFF.delay(failures)
                log.warning("%s/%s is looked at again in %g s: %s", *which, again, problem)
                self.measures.failures += 1
                failures += 1
            self.measures.looks += 1
            self.measures.seconds += clock() - begun
            if again is None:
                break
            await self._wait(known, again)
        del self._clusters[which]

    @staticmethod
    async def _wait(known: _Cluster, seconds: float) -> None:
        try:
            async with asyncio.timeout(seconds):
                await known.hinted.wait()
        except TimeoutError:
            return
