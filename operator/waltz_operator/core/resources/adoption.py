"""`Adoption` in a WaltzCluster: a cluster that runs elsewhere and is taken over. Pure."""

from __future__ import annotations

from enum import StrEnum
from typing import Annotated

from pydantic import Field

from waltz_operator.core.resources.model import Model, immutable, rule


class ForeignGroups(StrEnum):
    """What happens to the groups of the storages that are in no pool of the cluster."""

    KEEP = "Keep"
    RETIRE = "Retire"


class Adoption(Model):
    """A cluster that runs already, and whose storages and servers the operator does not run."""

    cluster_name: Annotated[
        str,
        Field(
            min_length=1,
            max_length=253,
            json_schema_extra=immutable(
                "adopt.clusterName cannot change: create this WaltzCluster again with the name "
                "that `waltz cluster show` prints"
            ),
        ),
    ]
    """The name of the cluster in ZooKeeper, as `waltz cluster show` prints it. It cannot be
    changed."""

    foreign_groups: ForeignGroups = ForeignGroups.KEEP
    """What happens to the groups of the storages that are in no pool. With `Keep` they keep their
    copies. With `Retire` they give up their copies, group by group, after every pool has its copy;
    the storages keep their files, and are removed from ZooKeeper."""


ADOPTION_RULES = (
    rule(
        "!has(self.adopt) || has(self.clusterKey)",
        "adopt needs clusterKey, the key of the cluster that is taken over: `waltz cluster "
        "key` prints it",
    ),
    rule(
        "!has(self.adopt) || has(self.zookeeper.external)",
        "adopt needs zookeeper.external, the ZooKeeper of the cluster that is taken over",
    ),
    rule(
        "!has(self.adopt) || self.adopt.foreignGroups != 'Retire' || self.pools.size() >= 3",
        "with adopt.foreignGroups Retire, 3 copies must remain: name at least 3 pools, or set "
        "adopt.foreignGroups to Keep",
    ),
    rule(
        "!has(oldSelf.adopt) || has(self.adopt)",
        "adopt cannot be removed: the cluster keeps its name in ZooKeeper",
    ),
)
"""The rules about ``adopt`` in the spec of a WaltzCluster."""
