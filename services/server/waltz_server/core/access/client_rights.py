"""The rights of one client's connection, by the names in its certificate. Pure."""

from __future__ import annotations

import shlex
from collections.abc import Iterable

from waltz.metadata.core.access_rules import AccessRules, Right

_WORDING = {
    Right.READ: "read",
    Right.APPEND: "append to",
    Right.ADMINISTER: "administer",
}
"""The words for each right in a denial, which names the partition after them."""


class ClientRights:
    """Decides whether a client may make a request, and says why it may not.

    ``address`` is the address of the client, ``names`` are the names in its verified certificate.
    Decisions are kept until the rules change: the rules are searched once for each right and
    partition, not for each append.
    """

    __slots__ = ("_address", "_decided", "_denied", "_names", "_rules")

    def __init__(self, address: str, names: frozenset[str]) -> None:
        self._address = address
        self._names = names
        self._rules: AccessRules | None = None
        """The rules for which ``_decided`` and ``_denied`` are valid."""
        self._decided: dict[tuple[Right, int], bool] = {}
        """For each right and partition that was checked: whether the client has the right."""
        self._denied: set[tuple[Right, int]] = set()
        """The rights and partitions of which `record_denial` has recorded a denial."""

    def allows(self, rules: AccessRules, right: Right, partition: int) -> bool:
        """Return whether ``rules`` give the client ``right`` on ``partition``."""
        if rules is not self._rules:  # A change in ZooKeeper makes a new object.
            self._rules = rules
            self._decided.clear()
            self._denied.clear()
        key = (right, partition)
        allowed = self._decided.get(key)
        if allowed is None:
            allowed = self._decided[key] = rules.allows(self._names, right, partition)
        return allowed

    def record_denial(self, right: Right, partition: int) -> bool:
        """Record a denial; return whether it is the first one of ``right`` on ``partition``.

        Denials under earlier rules do not count. The caller logs only the first denial: a client
        that repeats a denied request would fill the log.
        """
        key = (right, partition)
        if key in self._denied:
            return False
        self._denied.add(key)
        return True

    def denial_text(self, right: Right, partition: int) -> str:
        """Return which right is missing, by which names the client is known, and what to do."""
        missing = f"has no right to {_WORDING[right]} partition {partition}"
        if not self._names:
            return (
                f"client {self._address} {missing}, because the server knows no name of the "
                "client: connect with TLS and a certificate that the server verifies"
            )
        known = ", ".join(sorted(self._names))
        name = min(self._names)
        return (
            f"client {self._address} (certificate of {known}) {missing}: grant the right with "
            f"waltz access grant {shlex.quote(name)} {right.value} {partition}"
        )


def revoked_partition(
    before: AccessRules | None,
    after: AccessRules | None,
    names: frozenset[str],
    partitions: Iterable[int],
) -> int | None:
    """Return a partition that a client with ``names`` could read before and cannot read after.

    Rules that are None give every right. Returns None if there is no such partition.
    """
    for partition in partitions:
        had = before is None or before.allows(names, Right.READ, partition)
        has = after is None or after.allows(names, Right.READ, partition)
        if had and not has:
            return partition
    return None
