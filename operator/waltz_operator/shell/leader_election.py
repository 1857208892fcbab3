"""Elect one active operator among several by a Lease. Touches the API server and the clock.

Each operator is a *candidate* for the Lease, an object of Kubernetes with one holder. The holder is
the *leader*, the only active operator. Two active operators could change one partition's replicas
at the same time. So a leader that cannot renew the Lease stops before another candidate may take
the Lease: the leader stops after `RENEW_DEADLINE_SECONDS`, and the Lease expires after
`LEASE_SECONDS`. A candidate counts by its own clock how long the Lease has had the same version.
So the clocks of two operators are never compared.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from waltz_operator.core.objects.manifest import API_VERSIONS
from waltz_operator.core.observed import LiveObject
from waltz_operator.shell.clock import utc_now
from waltz_operator.shell.kube_api import Conflict, Kube, KubeError

log = logging.getLogger(__name__)

LEASE_SECONDS = 10
"""The time from the last renewal of the Lease until the Lease expires."""

RENEW_SECONDS = 2.0
"""The time from the leader's request for one renewal to its request for the next one."""

POLL_SECONDS = 1.0
"""The pause between two attempts of a candidate to take the Lease."""

RENEW_DEADLINE_SECONDS = 7.0
"""The time without a renewal after which the leader stops."""

_ATTEMPT_SECONDS = 2.0
"""The timeout of one attempt, which leaves time for a second one before the deadline."""

_DELETED = ""
"""The version of a Lease that was deleted; no existing Lease has it."""

assert RENEW_SECONDS < RENEW_DEADLINE_SECONDS < LEASE_SECONDS
# An attempt ends before the next one begins, and the first two attempts after a renewal end before
# the deadline.
assert _ATTEMPT_SECONDS <= RENEW_SECONDS
assert 2 * RENEW_SECONDS + _ATTEMPT_SECONDS <= RENEW_DEADLINE_SECONDS


@dataclass(frozen=True, slots=True)
class LeaseSighting:
    """The version of the Lease that was read last; ``since`` is when this version was first read.

    ``since`` is in seconds of this candidate's clock.
    """

    version: str
    since: float


def may_take(lease: LiveObject, identity: str, sighting: LeaseSighting, now: float) -> bool:
    """Whether ``identity`` may take the Lease: it is free, expired, or held by ``identity`` itself.

    ``now`` is in seconds of the clock of ``sighting.since``. A candidate may take its own Lease, so
    that a restarted container leads again at once.
    """
    holder = _spec_of(lease).get("holderIdentity") or ""
    duration = _spec_of(lease).get("leaseDurationSeconds") or LEASE_SECONDS
    return holder in ("", identity) or now - sighting.since > duration


class LeaderElection:
    """One candidate, named ``identity``, for the Lease ``name``."""

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
        self._sighting: LeaseSighting | None = None
        """The version of the Lease that was read last; None before this candidate has read any."""
        self._replaced = False
        """Whether this candidate, as the leader, has read a Lease that it does not hold."""
        self._deadline = 0.0
        """The time on this candidate's clock after which it must not act as the leader."""
        self.is_leader = False
        """Whether this candidate has acquired the Lease, and has not noticed its loss."""

    def may_write(self) -> bool:
        """Whether this candidate certainly holds the Lease: its deadline has not passed.

        `waltz_operator.shell.fencing` asks before each write. ``is_leader`` alone is not enough: a
        process that was paused continues with ``is_leader`` true until its renewals run again.
        """
        return self.is_leader and self._clock() < self._deadline

    async def acquire(self) -> None:
        """Wait until this candidate is the leader."""
        self.is_leader = await self._try_lease()
        while not self.is_leader:
            # Only a test has ``renew_seconds`` below `POLL_SECONDS`, to shorten this pause, too.
            await asyncio.sleep(min(self._renew_seconds, POLL_SECONDS))
            self.is_leader = await self._try_lease()
        log.info("lease %s: acquired by %s, leading", self._name, self._identity)

    async def renew_until_lost(self) -> None:
        """Renew the Lease that was acquired; return when this candidate is no longer the leader."""
        # The time of the request that acquired the Lease: `_try_lease` counts the deadline from it.
        requested_at = self._deadline - RENEW_DEADLINE_SECONDS
        now = self._clock()
        while now < self._deadline:
            # The pause counts from the request of the last attempt. If it counted from the end of
            # an attempt without an answer, no time would remain for a second one.
            next_attempt_at = min(requested_at + self._renew_seconds, self._deadline)
            await asyncio.sleep(next_attempt_at - now)
            requested_at = self._clock()
            if requested_at >= self._deadline:
                break
            # An attempt never lasts beyond the deadline. Otherwise a leader whose request hangs
            # would continue after another candidate may take the Lease. Shown by
            # test_leader_whose_request_hangs_stops_at_the_deadline.
            await self._try_lease(min(_ATTEMPT_SECONDS, self._deadline - requested_at))
            if self._replaced:
                break
            now = self._clock()
        self.is_leader = False
        log.error("lease %s: lost by %s, stopping", self._name, self._identity)

    async def release(self) -> None:
        """Release the Lease if this candidate is the leader, so that another can lead at once."""
        if not self.is_leader:
            return
        self.is_leader = False
        try:
            lease = await self._kube.get("Lease", self._namespace, self._name)
            if lease is not None and _spec_of(lease).get("holderIdentity") == self._identity:
                await self._write(lease, holder="")
        except KubeError as problem:
            log.warning(
                "lease %s: failed to release, the lease expires after %d s: %s",
                self._name,
                LEASE_SECONDS,
                problem,
            )

    async def _try_lease(self, seconds: float = _ATTEMPT_SECONDS) -> bool:
        """Take or renew the Lease within ``seconds``; return True if this certainly succeeded.

        Success sets a new deadline. It counts from the request, not from the answer. The Lease is
        renewed at some moment between the two. Another candidate counts the expiry from a later
        moment: when it first sees the renewed Lease. So this leader stops first.
        """
        requested_at = self._clock()
        try:
            async with asyncio.timeout(seconds):
                lease = await self._kube.get("Lease", self._namespace, self._name)
                if lease is None:
                    if not self._may_create(self._clock()):
                        return False
                    await self._kube.create(self._new_lease())
                    self._deadline = requested_at + RENEW_DEADLINE_SECONDS
                    return True
                version, now = lease["metadata"].get("resourceVersion", ""), self._clock()
                if self._sighting is None or self._sighting.version != version:
                    self._sighting = LeaseSighting(version, now)
                holder = _spec_of(lease).get("holderIdentity")
                # A leader that reads another holder never takes the Lease back, because that holder
                # is active already. Shown by test_leader_stops_when_another_holds_the_lease.
                self._replaced = self.is_leader and holder != self._identity
                if self._replaced or not may_take(lease, self._identity, self._sighting, now):
                    return False
                await self._write(lease, holder=self._identity)
                self._deadline = requested_at + RENEW_DEADLINE_SECONDS
                return True
        except Conflict:
            # Another candidate has written the Lease since it was read.
            return False
        except (KubeError, TimeoutError) as problem:
            log.warning(
                "lease %s: failed to acquire or renew, retrying: %s",
                self._name,
                str(problem) or f"no answer within {seconds:g} s",
            )
            return False

    def _may_create(self, now: float) -> bool:
        """Whether this candidate may create the Lease, which does not exist.

        A leader may create it, because its own Lease was deleted.

        A candidate that has never seen the Lease may create it. Otherwise the first operator of an
        installation would wait for a leader that does not exist. One case remains: the Lease of a
        leader is deleted just before this candidate's first read. Then both are leaders until the
        older leader reads the new Lease, or until its deadline.

        Any other candidate has seen the Lease, so the Lease was deleted. Its leader continues until
        it notices the deletion. So this candidate waits `LEASE_SECONDS`, as for a Lease that is not
        renewed.
        """
        if self.is_leader or self._sighting is None:
            return True
        if self._sighting.version != _DELETED:
            self._sighting = LeaseSighting(_DELETED, now)
        return now - self._sighting.since >= LEASE_SECONDS

    async def _write(self, lease: LiveObject, holder: str) -> None:
        """Write the Lease if it has not changed since it was read.

        Raises KubeError; Conflict if it has changed, so that only one of two candidates succeeds.
        """
        spec = self._spec(holder)
        if _spec_of(lease).get("holderIdentity") == holder:
            # A renewal: the time at which the Lease was acquired stays.
            del spec["acquireTime"]
        else:
            spec["leaseTransitions"] = (_spec_of(lease).get("leaseTransitions") or 0) + 1
        change = {
            "metadata": {"resourceVersion": lease["metadata"].get("resourceVersion", "")},
            "spec": spec,
        }
        await self._kube.patch("Lease", self._namespace, self._name, change)

    def _new_lease(self) -> dict[str, Any]:
        """Return the body of a Lease that this candidate holds."""
        return {
            "apiVersion": API_VERSIONS["Lease"],
            "kind": "Lease",
            "metadata": {"name": self._name, "namespace": self._namespace},
            "spec": {**self._spec(self._identity), "leaseTransitions": 0},
        }

    def _spec(self, holder: str) -> dict[str, Any]:
        """Return the spec of a Lease that ``holder`` acquires now."""
        now = utc_now().strftime("%Y-%m-%dT%H:%M:%S.%fZ")
        return {
            "holderIdentity": holder,
            "leaseDurationSeconds": LEASE_SECONDS,
            "acquireTime": now,
            "renewTime": now,
        }


def _spec_of(lease: LiveObject) -> Mapping[str, Any]:
    """Return the spec of a Lease, which Kubernetes lets a user omit."""
    return lease.get("spec") or {}
