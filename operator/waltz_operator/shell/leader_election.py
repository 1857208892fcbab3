"""Who of several operators acts: the one that holds a Lease. Touches the API server and the clock.

A candidate takes the Lease when nobody holds it, or when its holder has let it be for longer than
the Lease lasts, by the candidate's own clock: clocks are never compared. Whoever cannot renew in
time has to stop before somebody else may begin, so the holder's patience is the shorter one.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from waltz_operator.core.objects.manifest import API_VERSIONS
from waltz_operator.core.observed import Live
from waltz_operator.shell.kube_api import Conflict, Kube, KubeError
from waltz_operator.shell.reconciler import utc_now

log = logging.getLogger(__name__)

LEASE_SECONDS = 10
RENEW_SECONDS = 2.0
WATCH_SECONDS = 1.0
"""How often a candidate looks whether the Lease is still renewed."""

PATIENCE_SECONDS = 7.0
"""A leader that could not renew for so long is none any more."""


@dataclass(frozen=True, slots=True)
class Sighting:
    """The Lease as it was when it last changed, and when that was noticed."""

    version: str
    since: float


def may_take(lease: Live, identity: str, seen: Sighting, now: float) -> bool:
    """Whether a candidate may take the Lease: it is its own, nobody's, or was let be."""
    holder = lease["spec"].get("holderIdentity") or ""
    lasts = lease["spec"].get("leaseDurationSeconds") or LEASE_SECONDS
    return holder in ("", identity) or now - seen.since > lasts


class Election:
    """One candidate, called ``identity``, for the Lease ``name``."""

    def __init__(
        self,
        kube: Kube,
        namespace: str,
        name: str,
        identity: str,
        *,
        clock: Callable[[], float],
        renew_seconds: float = RENEW_SECONDS,
    ) -> None:
        self._kube = kube
        self._namespace = namespace
        self._name = name
        self._identity = identity
        self._clock = clock
        self._renew_seconds = renew_seconds
        self._seen: Sighting | None = None
        self._replaced = False
        self.leads = False

    async def win(self) -> None:
        """Return once this candidate is the leader."""
        self.leads = await self._try()
        while not self.leads:
            await asyncio.sleep(min(self._renew_seconds, WATCH_SECONDS))
            self.leads = await self._try()
        log.info("%s leads now", self._identity)

    async def lose(self) -> None:
        """Renew the Lease; return only when this candidate is no leader any more."""
        renewed = self._clock()
        while self._clock() - renewed < PATIENCE_SECONDS:
            await asyncio.sleep(self._renew_seconds)
            asked = self._clock()
            if await self._try():
                # From when it was asked for: the answer may have taken its time.
                renewed = asked
            elif self._replaced:
                break
        self.leads = False
        log.error("%s does not lead any more", self._identity)

    async def resign(self) -> None:
        """Let somebody else lead at once, if this candidate does."""
        if not self.leads:
            return
        self.leads = False
        try:
            found = await self._kube.get("Lease", self._namespace, self._name)
            if found is not None and found["spec"].get("holderIdentity") == self._identity:
                await self._write(found, holder="")
        except KubeError as problem:
            log.warning("the Lease %s is left to run out: %s", self._name, problem)

    async def _try(self) -> bool:
        """Take or renew the Lease; return whether that was done for sure."""
        try:
            async with asyncio.timeout(PATIENCE_SECONDS / 2):
                found = await self._kube.get("Lease", self._namespace, self._name)
                if found is None:
                    await self._kube.create(self._new())
                    return True
                version, now = found["metadata"].get("resourceVersion", ""), self._clock()
                if self._seen is None or self._seen.version != version:
                    self._seen = Sighting(version, now)
                holder = found["spec"].get("holderIdentity")
                # A leader that sees another name does not fight for the Lease.
                self._replaced = self.leads and holder != self._identity
                if self._replaced or not may_take(found, self._identity, self._seen, now):
                    return False
                await self._write(found, holder=self._identity)
                return True
        except Conflict:
            return False
        except (KubeError, TimeoutError) as problem:
            log.warning("the Lease %s could not be renewed: %s", self._name, problem)
            return False

    async def _write(self, found: Live, holder: str) -> None:
        spec = self._spec(holder)
        if found["spec"].get("holderIdentity") == holder:
            del spec["acquireTime"]
        else:
            spec["leaseTransitions"] = (found["spec"].get("leaseTransitions") or 0) + 1
        change = {
            "metadata": {"resourceVersion": found["metadata"].get("resourceVersion", "")},
            "spec": spec,
        }
        await self._kube.patch("Lease", self._namespace, self._name, change)

    def _new(self) -> dict[str, Any]:
        return {
            "apiVersion": API_VERSIONS["Lease"],
            "kind": "Lease",
            "metadata": {"name": self._name, "namespace": self._namespace},
            "spec": {**self._spec(self._identity), "leaseTransitions": 0},
        }

    def _spec(self, holder: str) -> dict[str, Any]:
        now = utc_now().strftime("%Y-%m-%dT%H:%M:%S.%fZ")
        return {
            "holderIdentity": holder,
            "leaseDurationSeconds": LEASE_SECONDS,
            "acquireTime": now,
            "renewTime": now,
        }
