"""Bugs to plant into the adoption of a cluster that runs elsewhere."""

from __future__ import annotations

from tests.mutants.planting import Nodes, Package, Planted, nodes


def _adoption(name: str) -> Nodes:
    """Return the test of the adoption with this name."""
    return nodes(f"unit/operator/test_operator_adoption.py::test_{name}")


def _guard(name: str) -> Nodes:
    """Return the test of storages that run elsewhere with this name."""
    return nodes(f"unit/operator/test_operator_adoption_guard.py::test_{name}")


def _copies(name: str) -> Nodes:
    """Return the test of what several copies require with this name."""
    return nodes(f"unit/operator/test_operator_several_copies.py::test_{name}")


ADOPTION_BUGS = (
    Planted(
        "a cluster is adopted although its storages have the addresses of the pools",
        Package.OPERATOR,
        "            if elsewhere := storages_elsewhere(desired, observed, present.maps):\n",
        "            if elsewhere := dict[str, str]():\n",
        "New servers take partitions, and find empty storages at the registered addresses.",
        _guard("cluster_with_addresses_of_pools_is_not_adopted_and_nothing_starts"),
    ),
    Planted(
        "volumes of an adopted cluster are deleted if its metadata are malformed",
        Package.OPERATOR,
        "case ZooKeeperUnreachable() | ClusterMalformed() | ClusterIncomplete():\n"
        "    return True\n",
        "case ZooKeeperUnreachable() | ClusterMalformed() | ClusterIncomplete():\n"
        "    return False\n",
        "When the metadata are restored, partitions lack the copies that quorums need.",
        _guard("deletion_keeps_volumes_if_metadata_with_foreign_storages_are_damaged"),
    ),
    Planted(
        "volumes of an adopted cluster are deleted if its metadata are gone",
        Package.OPERATOR,
        "return desired.may_have_foreign_storages\n",
        "return False\n",
        "When the metadata are restored, partitions lack the copies that quorums need.",
        _guard("deletion_keeps_volumes_if_metadata_with_foreign_storages_are_damaged"),
    ),
    Planted(
        "the budget of the storages does not count pools that leave",
        Package.OPERATOR,
        "    if has_several_copies:\n        allowed[Component.STORAGE]",
        "    if len(spec.pools) > 1:\n        allowed[Component.STORAGE]",
        "A drain evicts several copies while pools leave.",
        _copies("budget_stays_while_all_pools_leave_an_adopted_cluster"),
    ),
    Planted(
        "the operator stops a storage while evictions are allowed",
        Package.OPERATOR,
        "    if not desired.has_several_copies:\n        return None\n",
        "    if len(desired.cluster.spec.pools) <= 1:\n        return None\n",
        "An eviction at the same moment takes a second copy away.",
        _copies("operator_waits_for_the_budget_while_pools_leave"),
    ),
    Planted(
        "pools get copies while foreign servers run",
        Package.OPERATOR,
        "if reason := obstacle or health_obstacle(present):\n",
        "if reason := health_obstacle(present):\n",
        "A server that cannot resolve the pools' storages closes the partitions that it gets.",
        _adoption("servers_join_before_pools_get_copies_and_foreign_servers_are_named"),
    ),
    Planted(
        "servers start although they may not reach a foreign storage",
        Package.OPERATOR,
        "if foreign.unreached_storage(present.replicas) is not None:\n",
        "if False:\n",
        "With the wrong TLS mode, new servers take partitions that they cannot open.",
        _adoption("servers_do_not_start_while_a_foreign_storage_is_unreached_and_it_is_named"),
    ),
    Planted(
        "a foreign replica is switched on",
        Package.OPERATOR,
        "elif storage not in foreign:\n",
        "else:\n",
        "A replica that an administrator is rebuilding counts in votes.",
        _adoption("foreign_replica_that_is_switched_off_stops_the_adoption_and_stays_off"),
    ),
    Planted(
        "a partition whose metadata are lost gets empty copies",
        Package.OPERATOR,
        "if is_unused(view) and not view.replicas & foreign.storages\n",
        "if is_unused(view)\n",
        "Empty copies vote about a log that others hold.",
        _adoption("partition_that_foreign_servers_never_opened_gets_no_empty_copies"),
    ),
    Planted(
        "foreign groups leave although the pools have too few copies",
        Package.OPERATOR,
        "remaining = min(len(view.replicas - foreign) for view in views)\n",
        "remaining = min(len(view.replicas - members) for view in views)\n",
        "After the migration, partitions have two copies.",
        _adoption("groups_are_not_retired_with_fewer_than_three_copies_in_pools"),
    ),
    Planted(
        "foreign groups never leave",
        Package.OPERATOR,
        "    retirement = plan_foreign_groups(desired, present, foreign.storages)\n"
        "    if not retirement.done:\n"
        "        return retirement\n",
        "",
        "A retirement that the user asked for never happens.",
        _adoption("retired_groups_leave_one_after_the_other_and_keep_their_files"),
    ),
    Planted(
        "foreign storages lose their files",
        Package.OPERATOR,
        "order = Retirement(group, delete_files=False, at_once=1, prove=True)\n",
        "order = Retirement(group, delete_files=True, at_once=1, prove=True)\n",
        "Nothing is left of the old cluster to go back to.",
        _adoption("retired_groups_leave_one_after_the_other_and_keep_their_files"),
    ),
    Planted(
        "a foreign copy is not assigned again when a partition needs it",
        Package.OPERATOR,
        "    if not reassignment.done:\n        plan += reassignment\n    elif without_copy",
        "    if without_copy",
        "A partition stays closed until the failed storage returns.",
        _adoption("foreign_copy_is_assigned_again_if_a_partition_opens_only_with_it"),
    ),
    Planted(
        "volumes of an adopted cluster are deleted while foreign storages need them",
        Package.OPERATOR,
        "    if _is_log_shared(desired, observed):\n        return None\n",
        "",
        "The foreign storages have no quorum for what was committed with the pools' copies.",
        _adoption("deletion_keeps_znodes_and_volumes_while_foreign_storages_are_registered"),
    ),
)
