"""Bugs to plant into the adoption of a cluster that runs elsewhere."""

from __future__ import annotations

from tests.mutants.planting import Nodes, Package, Planted, nodes


def _adoption(name: str) -> Nodes:
    """Return the test of the adoption with this name."""
    return nodes(f"unit/operator/test_operator_adoption.py::test_{name}")


ADOPTION_BUGS = (
    Planted(
        "pools get copies while foreign servers run",
        Package.OPERATOR,
        "if reason := obstacle or absence_obstacle(present, frozenset()):\n",
        "if reason := absence_obstacle(present, frozenset()):\n",
        "A server that cannot resolve the pools' storages closes the partitions that it gets.",
        _adoption("servers_join_before_pools_get_copies_and_foreign_servers_are_named"),
    ),
    Planted(
        "servers start although they may not reach a foreign storage",
        Package.OPERATOR,
        "if adopted.unreached_storage(present.replicas) is not None:\n",
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
        "if is_unused(view) and not view.replicas & adopted.storages\n",
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
        "    retirement = plan_foreign_groups(desired, present, adopted.storages)\n"
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
        "    if _is_shared(desired, observed):\n        return None\n",
        "",
        "The foreign storages have no quorum for what was committed with the pools' copies.",
        _adoption("deletion_keeps_znodes_and_volumes_while_foreign_storages_are_registered"),
    ),
)
