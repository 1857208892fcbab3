"""Bugs to plant into the rolling changes of the operator and into the readiness of its pods."""

from __future__ import annotations

from tests.mutants.planting import Package, Planted, nodes

ROLL_BUGS = (
    Planted(
        "a storage is replaced while another copy is away",
        Package.OPERATOR,
        "return absence_obstacle(present, away)\n",
        "return None\n",
        "Two copies of a partition are away because of the operator, and appends wait.",
        nodes(
            "unit/operator/test_operator_rolls.py::test_roll_waits_until_restarted_storage_rejoins_its_sessions"
        ),
    ),
    Planted(
        "a storage that takes no part is replaced although another copy is unhealthy",
        Package.OPERATOR,
        "and may_be_repaired(present, storage)\n",
        "",
        "The last healthy copies are stopped.",
        nodes(
            "unit/operator/test_operator_rolls.py::test_storage_that_runs_without_taking_part_is_replaced_first_if_all_others_are_healthy"
        ),
    ),
    Planted(
        "evictions are allowed during a roll",
        Package.OPERATOR,
        "if is_rolling(desired, observed, Component.STORAGE):\n    return 0\n",
        "",
        "An eviction takes a second copy away at the moment at which the operator deletes one.",
        nodes(
            "unit/operator/test_operator_rolls.py::test_evictions_are_forbidden_before_the_first_storage_is_replaced"
        ),
    ),
    Planted(
        "a broken version spreads to the next pod",
        Package.OPERATOR,
        "if pod.is_current and not works(pod):\n",
        "if False:\n",
        "A pod after the other is replaced by a version that does not start.",
        nodes(
            "unit/operator/test_operator_rolls.py::test_broken_version_stops_at_one_pod_and_the_status_has_the_reason_of_the_kubelet"
        ),
    ),
    Planted(
        "the leader of ZooKeeper is not replaced last",
        Package.OPERATOR,
        "if pod.name == leader and len(outdated) > 1:\n",
        "if False:\n",
        "ZooKeeper elects a new leader several times during one roll.",
        nodes(
            "unit/operator/test_operator_rolls.py::test_followers_are_replaced_before_the_leader_and_members_before_storages"
        ),
    ),
    Planted(
        "a storage is replaced before the last member of ZooKeeper is back",
        Package.OPERATOR,
        "if unready:\n",
        "if False:\n",
        "A storage is stopped while ZooKeeper elects a leader.",
        nodes(
            "unit/operator/test_operator_rolls.py::test_storage_waits_until_the_member_that_was_replaced_last_is_ready"
        ),
    ),
    Planted(
        "a pod is replaced before Kubernetes knows the new version",
        Package.OPERATOR,
        "if not pod_set.is_processed:\n    return RollWaiting(\n",
        "if False:\n    return RollWaiting(\n",
        "The roll seems to be complete although no pod was replaced.",
        nodes(
            "unit/operator/test_operator_rolls.py::test_no_pod_is_replaced_before_kubernetes_has_processed_the_new_version"
        ),
    ),
    Planted(
        "a storage is ready although its server is gone",
        Package.STORAGE,
        "self._open_sessions.remove(self._sessions)\n",
        "",
        "A storage whose replicas take no part counts as ready, and the next one is evicted.",
        nodes(
            "unit/storage/test_storage_readiness.py::test_storage_is_ready_until_its_server_is_gone_and_again_with_the_next_server"
        ),
    ),
    Planted(
        "a connection of an earlier session makes a storage ready",
        Package.STORAGE,
        "if should_take_part and (partition, info.session_id) not in used:\n",
        "if should_take_part and partition not in {number for number, _ in used}:\n",
        "A storage with a fenced server counts as ready.",
        nodes(
            "unit/storage/test_storage_readiness.py::test_replica_is_attended_only_by_a_connection_of_its_own_session"
        ),
    ),
    Planted(
        "a server is ready before its partitions are open",
        Package.SERVER,
        "return healthy and not closed and node.has_joined, report\n",
        "return healthy, report\n",
        "An update stops the old servers while the new ones cannot serve.",
        nodes(
            "unit/server/test_server_readiness.py::test_server_is_ready_only_if_it_has_joined_and_its_partitions_are_open"
        ),
    ),
)
