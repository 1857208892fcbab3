"""The access rules and quotas that the connections of a server share. Touches the log and a clock.

The server calls `AccessControl.replace` when the rules change in ZooKeeper. Each connection checks
its requests by its `ConnectionAccess`. After a change, `close_without_right` closes the connections
of the clients that have lost a right to read.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection, Iterable, Mapping
from typing import Any

from waltz.metadata.core.access_rules import AccessRules, Right
from waltz.net import FrameConnection
from waltz.net.core.allowed_names import certificate_names
from waltz_server.core.access.client_quotas import ClientQuotas, QuotaLimits
from waltz_server.core.access.client_rights import ClientRights, revoked_partition

log = logging.getLogger(__name__)

Clock = Callable[[], float]
_NO_LIMITS = QuotaLimits()


class AccessControl:
    """The rules of the cluster, and the quotas of the clients.

    With ``required``, a cluster without access rules is treated as if its rules had no grants: the
    server denies every request to a partition.
    ``clock`` returns the time in seconds, which never goes back.
    """

    def __init__(
        self,
        clock: Clock,
        *,
        required: bool = False,
        limits: QuotaLimits = _NO_LIMITS,
    ) -> None:
        self.clock = clock
        self._required = required
        self.rules: AccessRules | None = AccessRules() if required else None
        """The newest rules; None: every request is allowed."""
        self._was_replaced = False
        """Whether `replace` was called, so that ``rules`` are those of ZooKeeper."""
        self.quotas = ClientQuotas(limits) if limits.are_set else None
        """The quotas of all clients; None: no limits."""
        self.checks_appends = self.rules is not None or self.quotas is not None
        """Whether the connections must check or count the appends of clients."""

    def replace(self, rules: AccessRules | None) -> bool:
        """Use ``rules``, which were read from ZooKeeper; return whether they are new."""
        if rules is None and self._required:
            rules = AccessRules()
        is_first_call = not self._was_replaced
        self._was_replaced = True
        if rules == self.rules:
            return False
        before, self.rules = self.rules, rules
        self.checks_appends = rules is not None or self.quotas is not None
        if rules is None:
            log.info("access rules: the cluster has none; every request is allowed")
        else:
            log.info("access rules: %d grants; checking every request", len(rules.grants))
        if not is_first_call:
            # The first rules are those with which the server starts. Their grants are not logged as
            # changes, because they may be old.
            _log_changes(before, rules)
        return True


class ConnectionAccess:
    """What one client's connection may do: its rights, and its share of the client's quotas.

    ``address`` is the address of the client, ``certificate`` its verified certificate in the form
    of `ssl.SSLSocket.getpeercert`, or None.
    """

    __slots__ = ("_client", "_control", "_entered", "_rights")

    def __init__(
        self, control: AccessControl, address: str, certificate: Mapping[str, Any] | None
    ) -> None:
        self._control = control
        names = certificate_names(certificate or {})
        self._rights = ClientRights(address, names)
        # A client without a certificate is known by its host, without the port: each connection has
        # another port, by which the quotas would count it as another client.
        self._client = ", ".join(sorted(names)) or address.rpartition(":")[0].strip("[]")
        self._entered = False
        """Whether `enter` has counted the connection."""

    def denial(self, right: Right, partition: int) -> str | None:
        """Return why the client has no ``right`` on ``partition``, None if it has the right.

        Log the first denial of each right and partition.
        """
        rules, rights = self._control.rules, self._rights
        if rules is None or rights.allows(rules, right, partition):
            return None
        why = rights.denial_text(right, partition)
        if rights.record_denial(right, partition):
            log.warning("refused a request: %s", why)
        return why

    def enter(self) -> str | None:
        """Count the connection; return why the server must close it, None if it stays open."""
        quotas = self._control.quotas
        if quotas is None:
            return None
        self._entered = quotas.enter(self._client, self._control.clock())
        if self._entered:
            return None
        return (
            f"client {self._client} has {quotas.limits.connections} open connections, the most "
            "that server.quota.connections allows: close some, or raise the setting"
        )

    def leave(self) -> None:
        """Count the end of the connection, if it was counted by `enter`."""
        if self._entered and self._control.quotas is not None:
            self._control.quotas.leave(self._client)
            self._entered = False

    def appended(self, size: int) -> float:
        """Count ``size`` bytes of appends; return until when the connection must not be read.

        The result is a time of the clock, or 0 if the connection may be read at once.
        """
        quotas = self._control.quotas
        if quotas is None or not self._entered:
            return 0.0
        now = self._control.clock()
        seconds = quotas.appended(self._client, size, now)
        return now + seconds if seconds else 0.0


def close_without_right(
    connections: Iterable[FrameConnection],
    before: AccessRules | None,
    after: AccessRules | None,
    partitions: Collection[int],
) -> None:
    """Close the connections of clients that have lost the right to read one of ``partitions``.

    ``before`` and ``after`` are the rules before and after a change. The feeds and the waiting
    reads of these clients end: they would go on without another request that could be denied. The
    clients connect again, and get an answer that says which right is missing. A lost right to
    append needs no closing, because each append is checked.
    """
    # The result for each set of names, because many connections have the same names.
    revoked: dict[frozenset[str], int | None] = {}
    for connection in connections:
        names = certificate_names(connection.peer_certificate or {})
        if names not in revoked:
            revoked[names] = revoked_partition(before, after, names, partitions)
        partition = revoked[names]
        if partition is not None:
            reason = f"the right to read partition {partition} was revoked"
            log.info("closing the connection of client %s: %s", connection.peer, reason)
            connection.close(reason)


def _log_changes(before: AccessRules | None, after: AccessRules | None) -> None:
    """Log each grant that is new or gone, so that the log shows when a right began and ended."""
    old = frozenset(before.grants if before is not None else ())
    new = frozenset(after.grants if after is not None else ())
    for change, grants in (("granted", new - old), ("revoked", old - new)):
        for grant in sorted(grants):
            log.info(
                "access rules: %s %s on partitions %d to %d for %s",
                change,
                grant.right.value,
                grant.first,
                grant.last,
                grant.name,
            )
