"""The rules that say which client may do what with which partitions. Pure.

The znode ``access`` below the cluster's root has the rules as JSON. Without the znode every request
is allowed, as in Waltz 0.13.2. A client is known by the names in its verified certificate.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Iterable
from dataclasses import dataclass
from enum import StrEnum

from waltz.metadata.core.codec import MalformedMetadata

_FORMAT = 1


class Right(StrEnum):
    """What a client may do. A right includes no other right.

    ADMINISTER lets a client change which partitions a server prefers.
    """

    READ = "read"
    APPEND = "append"
    ADMINISTER = "administer"


@dataclass(frozen=True, slots=True, order=True)
class Grant:
    """``name`` may do ``right`` with the partitions from ``first`` to ``last``, both included."""

    name: str
    right: Right
    first: int
    last: int

    def __post_init__(self) -> None:
        if not self.name or not 0 <= self.first <= self.last:
            raise ValueError("a grant needs a name and a range of partitions in ascending order")


@dataclass(frozen=True, slots=True)
class AccessRules:
    """The grants of a cluster, sorted and without duplicates."""

    grants: tuple[Grant, ...] = ()

    def with_grant(self, grant: Grant) -> AccessRules:
        """Return these rules and ``grant``."""
        return _rules((*self.grants, grant))

    def without_grant(self, grant: Grant) -> AccessRules:
        """Return these rules without ``grant``.

        Partitions of ``grant`` are cut out of the grants with the same name and right. What remains
        of such a grant before and after these partitions becomes a grant of its own.
        """
        kept: list[Grant] = []
        for old in self.grants:
            if (old.name, old.right) != (grant.name, grant.right):
                kept.append(old)
                continue
            if old.first < grant.first:
                last = min(old.last, grant.first - 1)
                kept.append(Grant(old.name, old.right, old.first, last))
            if old.last > grant.last:
                first = max(old.first, grant.last + 1)
                kept.append(Grant(old.name, old.right, first, old.last))
        return _rules(kept)

    def allows(self, names: Collection[str], right: Right, partition: int) -> bool:
        """Return whether a client with ``names`` has ``right`` on ``partition``."""
        return any(
            grant.right is right and grant.first <= partition <= grant.last and grant.name in names
            for grant in self.grants
        )

    def encode(self) -> bytes:
        """Return the data of the znode."""
        grants = [
            {
                "name": grant.name,
                "right": grant.right.value,
                "first": grant.first,
                "last": grant.last,
            }
            for grant in self.grants
        ]
        return json.dumps({"format": _FORMAT, "grants": grants}).encode()

    @classmethod
    def decode(cls, data: bytes) -> AccessRules:
        """Read what `encode` returned. Raises MalformedMetadata."""
        try:
            fields = json.loads(data)
            if fields["format"] != _FORMAT:
                raise ValueError(f"format {fields['format']} is not {_FORMAT}")
            return _rules(
                Grant(
                    str(grant["name"]),
                    Right(grant["right"]),
                    int(grant["first"]),
                    int(grant["last"]),
                )
                for grant in fields["grants"]
            )
        except KeyError as problem:
            raise MalformedMetadata("AccessRules", f"it has no {problem}") from problem
        # OverflowError: JSON text can have the number Infinity, which is no int.
        except (ValueError, TypeError, OverflowError, RecursionError) as problem:
            raise MalformedMetadata("AccessRules", str(problem)) from problem


def _rules(grants: Iterable[Grant]) -> AccessRules:
    """Return rules with ``grants``, sorted and without duplicates."""
    return AccessRules(tuple(sorted(set(grants))))
