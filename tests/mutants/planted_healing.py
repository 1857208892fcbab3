"""Bugs to plant into the replacement of lost volumes, hunted by tests."""

from __future__ import annotations

from tests.mutants.planting import Package, Planted, nodes

HEALING_BUGS = (
    Planted(
        "a volume is replaced while another replica is away",
        Package.OPERATOR,
        "return repair_obstacle(present, storages)\n",
        "return None\n",
        "The last copy of a transaction is deleted.",
        nodes(
            "unit/operator/test_operator_healing.py::test_volume_is_not_replaced_while_another_replica_is_away"
        ),
    ),
    Planted(
        "a volume with an old copy is not emptied",
        Package.OPERATOR,
        "if report.held:\n",
        "if False:\n",
        "A volume that comes back keeps records that the other copies have cut.",
        nodes(
            "unit/operator/test_operator_healing.py::test_volume_that_holds_replicas_after_the_replacement_is_emptied_first"
        ),
    ),
    Planted(
        "a deposed operator continues its copy",
        Package.OPERATOR,
        "await self._access.perform(step, lambda: self._may_write() and may_continue())\n",
        "await self._access.perform(step, may_continue)\n",
        "Two operators write one replica.",
        nodes(
            "unit/operator/test_operator_replacement_steps.py::test_copy_of_a_deposed_operator_stops_before_its_next_part"
        ),
    ),
    Planted(
        "evictions are allowed while a volume is replaced",
        Package.OPERATOR,
        "if is_replacing(desired):\n    return 0\n",
        "",
        "Two storages are away at the same time.",
        nodes(
            "unit/operator/test_operator_healing.py::test_claim_and_pod_are_deleted_only_while_evictions_are_forbidden"
        ),
    ),
    Planted(
        "a replica is filled from one that is not healthy",
        Package.ADMIN,
        "and unhealthy_reason(observation, view, storage) is None\n",
        "",
        "A replica is copied from one that is switched off.",
        nodes(
            "unit/admin/test_operations_health.py::test_replica_is_not_copied_from_one_that_is_not_healthy"
        ),
    ),
    Planted(
        "a comparison skips the beginning of the next partition",
        Package.OPERATOR,
        "first_id = replacement.next_id if remaining[0] == replacement.partition else 0",
        "first_id = replacement.next_id",
        "Transactions of a replaced copy are never compared.",
        nodes(
            "unit/operator/test_operator_healing.py::test_comparison_continues_at_the_beginning_after_a_partition_that_is_unassigned"
        ),
    ),
)
