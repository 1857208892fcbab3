"""How the results of ``waltz access`` are shown."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

from waltz.cli.rows import Rendering, column, listing
from waltz.metadata.core.access_rules import AccessRules, Right


@dataclass(frozen=True, slots=True)
class GrantRow:
    """One grant: the client, what it may do, and the partitions from ``first`` to ``last``."""

    client: str
    right: Right
    first: Annotated[int, column("first partition")]
    last: Annotated[int, column("last partition")]


def render_grants(rules: AccessRules | None, client: str | None = None) -> Rendering:
    """Return the rendering of the grants of ``client`` (None: of all clients).

    ``rules`` is None if the cluster has no access rules.
    """
    grants = () if rules is None else rules.grants
    rows = [
        GrantRow(grant.name, grant.right, grant.first, grant.last)
        for grant in grants
        if client is None or grant.name == client
    ]
    return listing("Grants", GrantRow, rows)
