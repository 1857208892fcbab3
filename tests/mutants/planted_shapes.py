"""Bugs to plant into the changes of a cluster's shape: of its copies and of its storages."""

from __future__ import annotations

from tests.mutants.planting import Nodes, Package, Planted, nodes

_HISTORIES = nodes(
    "unit/operator/test_operator_shape_properties.py::test_random_changes_of_shape_end_without_harm_to_copies"
)
_DIFFERING_COPY = nodes(
    "unit/operator/test_operator_shape_properties.py::test_copy_that_differs_stops_a_removal_and_stays"
)


def _rebalance(name: str) -> Nodes:
    """Return the test of the rebalances with this name."""
    return nodes(f"unit/operator/test_operator_rebalance.py::test_{name}")


SHAPE_BUGS = (
    Planted(
        "a copy is given up without a proof of the others",
        Package.ADMIN,
        "tuple(EqualReplicas(v.partition, v.replicas - leaving) for v in chosen if order.prove),\n",
        "(),\n",
        "The only right copy of a transaction is removed with its pool.",
        _DIFFERING_COPY,
    ),
    Planted(
        "the source of a move goes without a proof of the destination",
        Package.ADMIN,
        "proofs = (EqualReplicas(view.partition, wanted),) if order.prove else ()\n",
        "proofs = ()\n",
        "The only right copy of a transaction is removed with its storage.",
        _HISTORIES,
    ),
    Planted(
        "copies are removed before others are added",
        Package.OPERATOR,
        "if affected and not is_growth_complete(desired, present):\n",
        "if False:\n",
        "A pool that is replaced is removed before the new one has its copy.",
        nodes(
            "unit/operator/test_operator_shape_properties.py::test_replaced_pool_leaves_after_the_new_one_has_its_copy"
        ),
    ),
    Planted(
        "an outdated plan drops a replica that is assigned again",
        Package.OPERATOR,
        "if isinstance(step, DropReplicas):",
        "if isinstance(step, DropReplicas) and not step.delete_files:",
        "A pool that is named again loses a copy that counts in quorums.",
        nodes(
            "unit/operator/test_operator_executor.py::test_replica_that_zookeeper_assigns_is_not_dropped"
        ),
    ),
    Planted(
        "a long proof that replicas are equal reports no progress",
        Package.ADMIN,
        "                on_compared=self._on_compared,\n",
        "",
        "Kubernetes restarts the operator during a long proof, again and again.",
        nodes(
            "unit/admin/test_operations_replica_comparison.py::test_proof_before_a_change_reports_its_progress"
        ),
    ),
    Planted(
        "a storage is unregistered although it holds replicas",
        Package.OPERATOR,
        "for begun in (*_half_done_moves(members), *_leftover_moves(present, members, move)):\n",
        "for begun in _half_done_moves(members):\n",
        "A pod is removed together with a replica that the last session needs.",
        _HISTORIES,
    ),
    Planted(
        "a pool that is arranged by bytes is spread by count at once",
        Package.OPERATOR,
        "return not self.request and self.record.storages != self.pool.spec.storages\n",
        "return not self.request\n",
        "After a rebalance the partitions move back.",
        _rebalance("request_moves_the_partition_that_balances_the_volumes_and_is_answered"),
    ),
    Planted(
        "the source of a recorded move keeps the partition",
        Package.OPERATOR,
        "rank = -1 if is_recorded_destination else 0\n",
        "rank = 0\n",
        "A partition moves to and fro, and the rebalance never ends.",
        _rebalance("recorded_move_ends_at_its_destination_although_it_has_more_partitions"),
    ),
    Planted(
        "a withdrawn request is followed to its end",
        Package.OPERATOR,
        "if not remaining_moves or not _is_followed(members):\n",
        "if not remaining_moves:\n",
        "A rebalance cannot be stopped.",
        _rebalance("request_withdrawn_before_its_move_moves_nothing"),
    ),
    Planted(
        "a move under way ends half-way",
        Package.OPERATOR,
        "if present.replicas.held(move.destination, move.partition) is not None:\n",
        "if False:\n",
        "A replica that is filled is dropped again whenever a partition grows.",
        _rebalance("move_that_has_begun_is_completed_although_sizes_have_changed"),
    ),
    Planted(
        "an outdated plan changes the record of a pool",
        Package.OPERATOR,
        'change = {"resourceVersion": observed.resource_version, "annotations": annotations}\n',
        'change = {"annotations": annotations}\n',
        "A deposed operator replaces the moves that another one follows.",
        _rebalance("record_step_changes_the_pool_only_in_the_version_that_was_planned"),
    ),
    Planted(
        "a small volume gets a partition that makes it fuller than the fullest",
        Package.OPERATOR,
        "return not is_too_large and is_improvement(source, destination, size)\n",
        "return not is_too_large\n",
        "A rebalance fills a volume.",
        nodes(
            "unit/operator/test_operator_balance.py::test_balance_partition_that_would_overfill_a_small_volume_stays"
        ),
    ),
    Planted(
        "a pool is removed although some partitions keep too few copies",
        Package.OPERATOR,
        "remaining = min((len(view.replicas - members) for view in affected),",
        "remaining = max((len(view.replicas - members) for view in affected),",
        "Partitions have two copies without the consent of the administrator.",
        nodes(
            "unit/operator/test_operator_shape.py::test_pool_is_not_removed_while_any_partition_would_keep_fewer_than_three_copies"
        ),
    ),
)
