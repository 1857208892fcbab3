"""Bugs to plant into the operator, hunted by tests."""

from __future__ import annotations

from tests.mutants.planting import Package, Planted, nodes

OPERATOR_BUGS = (
    Planted(
        "a finalizer of another controller counts as the own one",
        Package.OPERATOR,
        "if FINALIZER not in desired.cluster.metadata.finalizers:\n",
        "if not desired.cluster.metadata.finalizers:\n",
        "A deletion leaves objects and znodes behind.",
        nodes(
            "unit/operator/test_operator_plan_guards.py::test_own_finalizer_is_added_first_beside_one_of_another_controller"
        ),
    ),
    Planted(
        "a pool of another cluster is claimed",
        Package.OPERATOR,
        "elif owner not in (None, desired.name):\n",
        'elif owner == "":\n',
        "Two clusters use one storage pool.",
        nodes("unit/operator/test_operator_plan.py::test_pool_of_another_cluster_is_a_problem"),
    ),
    Planted(
        "metadata that was used is deleted as incomplete",
        Package.OPERATOR,
        "not metadata.used\n",
        "True\n",
        "A cluster that lost a znode loses all of them.",
        nodes(
            "unit/operator/test_operator_plan_guards.py::test_incomplete_metadata_is_deleted_only_if_it_was_never_used"
        ),
    ),
    Planted(
        "metadata with another key is taken over",
        Package.OPERATOR,
        "case ClusterPresent(name, _, key) if key != desired.key:\n",
        "case ClusterPresent(name, _, key) if False:\n",
        "A new cluster with an old name uses the log of its predecessor.",
        nodes(
            "unit/operator/test_operator_plan_guards.py::test_metadata_with_another_key_is_not_taken_over"
        ),
    ),
    Planted(
        "a new pool gets the group of foreign storages",
        Package.OPERATOR,
        "taken = _foreign_groups(desired, maps).union(*occupied)\n",
        "taken = set().union(*occupied)\n",
        "A partition counts two copies in one group as one.",
        nodes(
            "unit/operator/test_operator_plan_guards.py::test_new_pool_gets_a_group_that_no_foreign_storage_has"
        ),
    ),
    Planted(
        "a new pool gets the group of a pool that is registered in several",
        Package.OPERATOR,
        "taken = _foreign_groups(desired, maps).union(*occupied)\n",
        "taken = {*chosen.values(), *_foreign_groups(desired, maps)}\n",
        "A partition counts two copies in one group as one.",
        nodes(
            "unit/operator/test_operator_plan_problems.py::test_new_pool_gets_no_group_of_a_pool_in_several_groups"
        ),
    ),
    Planted(
        "a lost replica is created again",
        Package.OPERATOR,
        "if held is None and was_in_session:\n",
        "if held is None and was_in_session and not view.replicas:\n",
        "An empty replica counts in a vote, and acknowledged transactions lose their quorum.",
        nodes("unit/operator/test_operator_plan.py::test_lost_replica_is_a_problem_for_a_person"),
    ),
    Planted(
        "an incomplete replica is switched on",
        Package.OPERATOR,
        "if was_in_session and not counts_in_vote(view, storage, held):\n",
        "if was_in_session and held.session_id is None:\n",
        "It counts in a vote without the transactions that it lacks.",
        nodes(
            "unit/operator/test_operator_plan_guards.py::test_incomplete_replica_that_is_switched_off_is_reported_and_not_switched_on"
        ),
    ),
    Planted(
        "a replica is added in spite of an obstacle",
        Package.ADMIN,
        "if problem := unsettled_reason(observation, view, view.replicas):\n",
        "if (problem := unsettled_reason(observation, view, view.replicas)) and not new:\n",
        "One more failure closes the partition.",
        nodes(
            "unit/admin/test_operations_shape.py::test_addition_waits_for_unhealthy_replica_and_names_it"
        ),
    ),
    Planted(
        "several replicas are added at once",
        Package.ADMIN,
        "if shortage is None or len(view.replicas) > 1:\n",
        "if shortage is None:\n",
        "The old and the new quorum do not overlap.",
        nodes(
            "unit/admin/test_operations_shape.py::test_adding_two_replicas_at_once_to_a_replicated_partition_is_refused"
        ),
    ),
    Planted(
        "replicas are assigned before they exist",
        Package.OPERATOR,
        "if result == EMPTY_PLAN and not unreachable:\n",
        "if not unreachable:\n",
        "A server opens a session with replicas that their storages refuse.",
        nodes(
            "unit/operator/test_operator_plan_properties.py::test_plan_from_any_state_reaches_the_desired_state"
        ),
    ),
    Planted(
        "a partition is opened first without a replica in every pool",
        Package.OPERATOR,
        "servers_may_start = "
        "not unused or (pools_are_usable and without_replica.isdisjoint(unused))\n",
        "servers_may_start = not unused or pools_are_usable\n",
        "Its first transactions are in fewer places than the cluster specifies.",
        nodes("unit/operator/test_operator_plan.py::test_first_start_performs_steps_in_order"),
    ),
    Planted(
        "a stateful set is scaled one below its registered storages",
        Package.OPERATOR,
        "return max([pool.spec.storages, *(n + 1 for n in ordinals if n is not None)])\n",
        "return max([pool.spec.storages, *(n for n in ordinals if n is not None)])\n",
        "A storage that holds transactions is removed.",
        nodes(
            "unit/operator/test_operator_plan.py::test_stateful_set_is_never_scaled_below_registered"
        ),
    ),
    Planted(
        "a stateful set is scaled down while ZooKeeper does not answer",
        Package.OPERATOR,
        'int(live["spec"].get("replicas", 0)))',
        "0)",
        "A storage that holds transactions is removed.",
        nodes(
            "unit/operator/test_operator_plan_guards.py::test_stateful_set_keeps_its_pods_while_zookeeper_does_not_answer"
        ),
    ),
    Planted(
        "a stateful set is deleted without its pods while one of them does not run",
        Package.OPERATOR,
        'return f"pod {not_running[0]} does not run" if not_running else None',
        "return None",
        "The pod is not started again until the set exists.",
        nodes(
            "unit/operator/test_operator_growth.py::test_stateful_set_is_recreated_only_while_all_pods_run_and_are_current"
        ),
    ),
    Planted(
        "a stateful set that is created again ends pods while ZooKeeper does not answer",
        Package.OPERATOR,
        "return max(pool.spec.storages, _num_replicas_of_pods(pool, observed))",
        "return pool.spec.storages",
        "A storage that holds transactions is removed.",
        nodes(
            "unit/operator/test_operator_growth.py::test_set_without_pods_is_created_again_while_zookeeper_does_not_answer"
        ),
    ),
    Planted(
        "a pod is restarted again and again for a file system that no start resizes",
        Package.OPERATOR,
        "return created is not None and time is not None and created < time",
        "return True",
        "The storage never serves for long.",
        nodes(
            "unit/operator/test_operator_growth.py::test_pod_whose_restart_has_not_resized_its_file_system_is_not_restarted_again"
        ),
    ),
    Planted(
        "an object of another owner is changed",
        Package.OPERATOR,
        "if live is not None and not is_ours(live, desired.name):\n"
        "    result += problem(foreign_object(manifest.key))\n",
        'if live is not None and not live["metadata"]:\n'
        "    result += problem(foreign_object(manifest.key))\n",
        "The operator takes over a foreign object of the same name.",
        nodes("unit/operator/test_operator_plan.py::test_foreign_objects_are_never_changed"),
    ),
    Planted(
        "an object that is being deleted is applied",
        Package.OPERATOR,
        'elif live is not None and live["metadata"].get("deletionTimestamp"):\n',
        'elif live is not None and live["metadata"].get("deletion"):\n',
        "The change is lost with the object.",
        nodes(
            "unit/operator/test_operator_plan_guards.py::test_object_that_is_being_deleted_is_awaited"
        ),
    ),
    Planted(
        "emptied ZooKeeper members initialize an ensemble again",
        Package.OPERATOR,
        "return not (forbidden_before or existed)\n",
        "return not existed\n",
        "The cluster seems not to exist, and a new one is created over its log.",
        nodes(
            "unit/operator/test_operator_plan.py::test_switch_forbids_empty_members_a_new_ensemble_once_the_cluster_exists"
        ),
    ),
    Planted(
        "storages end before servers",
        Package.OPERATOR,
        '_plan_processes(desired, observed, "Deployment", Component.SERVER)\n'
        'or _plan_processes(desired, observed, "StatefulSet", Component.STORAGE)\n',
        '_plan_processes(desired, observed, "StatefulSet", Component.STORAGE)\n'
        'or _plan_processes(desired, observed, "Deployment", Component.SERVER)\n',
        "Servers cannot finish their appends.",
        nodes(
            "unit/operator/test_operator_plan.py::test_deletion_without_zookeeper_and_with_stuck_pods_ends"
        ),
    ),
    Planted(
        "a deletion waits for stuck pods without a limit",
        Package.OPERATOR,
        "if num_pods and observed.deleting_seconds < WAIT_LIMIT_SECONDS:\n",
        "if num_pods:\n",
        "A cluster on a node that no longer exists cannot be deleted.",
        nodes(
            "unit/operator/test_operator_plan.py::test_deletion_without_zookeeper_and_with_stuck_pods_ends"
        ),
    ),
    Planted(
        "znodes are deleted with foreign znodes below them",
        Package.OPERATOR,
        "case ClusterPresent(foreign_znodes=True):\n    return None\n",
        "",
        "Data that does not belong to the cluster is lost.",
        nodes(
            "unit/operator/test_operator_plan_guards.py::test_deletion_keeps_znodes_with_foreign_znodes_below_them"
        ),
    ),
    Planted(
        "znodes of another cluster are deleted",
        Package.OPERATOR,
        "return (present.name, present.key) == (desired.metadata_name, desired.key)\n",
        "return present.name == desired.metadata_name\n",
        "The deletion of a cluster destroys one that has taken its name.",
        nodes(
            "unit/operator/test_operator_plan_guards.py::test_deletion_keeps_znodes_of_another_cluster_of_the_same_name"
        ),
    ),
    Planted(
        "znodes are deleted while a pool is missing",
        Package.OPERATOR,
        "and not desired.missing_pools\n",
        "",
        "Volumes that are kept cannot be opened again.",
        nodes(
            "unit/operator/test_operator_plan.py::test_deletion_while_a_pool_is_missing_keeps_the_znodes"
        ),
    ),
    Planted(
        "ZooKeeper's volumes are deleted before those of the storages",
        Package.OPERATOR,
        "zookeeper_volumes_are_deleted = deletes_all_volumes(desired)\n",
        "zookeeper_volumes_are_deleted = bool(deleted_pools)\n",
        "Storages that keep their volumes lose their metadata.",
        nodes(
            "unit/operator/test_operator_plan.py::test_deletion_while_a_pool_is_missing_keeps_the_volumes_of_zookeeper"
        ),
    ),
    Planted(
        "a pool is released while its cluster exists",
        Package.OPERATOR,
        "if pool.deletion_timestamp is None or cluster_exists:\n",
        "if pool.deletion_timestamp is None:\n",
        "A pool disappears with the volumes of a running cluster.",
        nodes(
            "unit/operator/test_operator_reconcile.py::test_finalizer_of_an_orphaned_pool_is_removed"
        ),
    ),
    Planted(
        "certificates are renewed after they have expired",
        Package.OPERATOR,
        "if is_outdated or (days is not None and days < _RENEWAL_DAYS):\n",
        "if is_outdated or (days is not None and days < 0):\n",
        "All processes lose their connections.",
        nodes(
            "unit/operator/test_operator_plan_guards.py::test_certificates_are_renewed_thirty_days_before_they_expire"
        ),
    ),
    Planted(
        "half of the replicas make a cluster ready",
        Package.OPERATOR,
        ">= quorum(len(view.replicas))",
        ">= len(view.replicas) // 2",
        "A cluster that commits nothing is reported as ready.",
        nodes(
            "unit/operator/test_operator_plan_guards.py::test_partition_has_a_quorum_while_most_of_its_replicas_are_healthy"
        ),
    ),
    Planted(
        "a cluster is ready for a generation that is not reconciled",
        Package.OPERATOR,
        "is_ready = all_served and is_reconciled_or_changing and not plan.problems\n",
        "is_ready = all_served and not plan.problems\n",
        "A tool that waits for a change continues too early.",
        nodes(
            "unit/operator/test_operator_reconcile.py::test_ready_is_false_without_quorum_and_before_a_new_generation_is_reconciled"
        ),
    ),
    Planted(
        "a resource is changed without its version",
        Package.OPERATOR,
        '"resourceVersion": metadata.resource_version,\n',
        "",
        "Two clusters claim one pool, and finalizers of other controllers are lost.",
        nodes(
            "unit/operator/test_operator_executor.py::test_step_on_a_resource_that_changed_since_its_observation_fails"
        ),
    ),
    Planted(
        "a lease is renewed from the time of the answer",
        Package.OPERATOR,
        "await self._write(lease, holder=self._identity)\n"
        "self._deadline = requested_at + RENEW_DEADLINE_SECONDS\n",
        "await self._write(lease, holder=self._identity)\n"
        "self._deadline = self._clock() + RENEW_DEADLINE_SECONDS\n",
        "A leader acts after another operator has taken the Lease.",
        nodes(
            "unit/operator/test_operator_election.py::test_deadline_of_a_new_leader_counts_from_its_request"
        ),
    ),
    Planted(
        "a lease is taken before it has expired",
        Package.OPERATOR,
        'return holder in ("", identity) or now - sighting.since > duration\n',
        'return holder in ("", identity) or now - sighting.since > duration / 2\n',
        "Two operators act at the same time.",
        nodes(
            "unit/operator/test_operator_election.py::test_lease_without_holder_or_expired_may_be_taken"
        ),
    ),
    Planted(
        "a replaced leader takes the lease back",
        Package.OPERATOR,
        "self._replaced = self.is_leader and holder != self._identity\n",
        "self._replaced = False\n",
        "Two operators act at the same time.",
        nodes(
            "unit/operator/test_operator_election.py::test_leader_stops_when_another_holds_the_lease"
        ),
    ),
    Planted(
        "a renewal lasts beyond the deadline",
        Package.OPERATOR,
        "self._try_lease(min(_ATTEMPT_SECONDS, self._deadline - requested_at))",
        "self._try_lease(_ATTEMPT_SECONDS)",
        "A leader whose request hangs acts after the Lease has expired.",
        nodes(
            "unit/operator/test_operator_election.py::test_leader_whose_request_hangs_stops_at_the_deadline"
        ),
    ),
    Planted(
        "an object of the same name is deleted",
        Package.OPERATOR,
        'body["preconditions"] = {"uid": uid}\n',
        "pass\n",
        "A new object is deleted in place of the observed one.",
        nodes(
            "unit/operator/test_operator_kube.py::test_delete_has_the_uid_as_precondition_and_ignores_missing_objects"
        ),
    ),
    Planted(
        "an event during a reconcile is lost",
        Package.OPERATOR,
        "async with asyncio.timeout(seconds):\n    await worker.enqueued.wait()\n",
        "worker.enqueued.clear()\n"
        "async with asyncio.timeout(seconds):\n    await worker.enqueued.wait()\n",
        "A change is reconciled only after the next period.",
        nodes(
            "unit/operator/test_operator_controller.py::test_event_during_a_reconcile_causes_another_one"
        ),
    ),
    Planted(
        "steps after a failed one are performed",
        Package.OPERATOR,
        ")\nfailed_steps.append(step)\n",
        ")\n",
        "An assignment is written for replicas that do not exist.",
        nodes(
            "unit/operator/test_operator_reconcile.py::test_steps_after_a_failed_one_are_not_performed"
        ),
    ),
    Planted(
        "finalizers of other controllers are removed",
        Package.OPERATOR,
        "return [each for each in metadata.finalizers if each != FINALIZER]\n",
        "return []\n",
        "Another controller cannot clean up.",
        nodes(
            "unit/operator/test_operator_executor.py::test_removed_finalizer_leaves_those_of_other_controllers"
        ),
    ),
    Planted(
        "an uninstallation removes finalizers of other controllers",
        Package.OPERATOR,
        '"finalizers": [each for each in finalizers if each != FINALIZER],\n',
        '"finalizers": [],\n',
        "Another controller cannot clean up.",
        nodes(
            "unit/operator/test_operator_finalizer_removal.py::test_removal_takes_our_finalizer_from_every_resource_and_no_other"
        ),
    ),
    Planted(
        "certificates are valid from now on only",
        Package.OPERATOR,
        ".not_valid_before(now - _BACKDATING)\n",
        ".not_valid_before(now)\n",
        "Pods on nodes whose clocks are slow refuse new certificates.",
        nodes(
            "unit/operator/test_operator_certificates.py::test_certificates_are_valid_on_nodes_whose_clocks_are_slow"
        ),
    ),
    Planted(
        "a condition changes its time at every reconcile",
        Package.OPERATOR,
        "since = before.last_transition_time if before and before.status == status else now\n",
        "since = now\n",
        "The status is written each second, and does not show since when the condition holds.",
        nodes(
            "unit/operator/test_operator_plan_guards.py::test_condition_keeps_the_time_of_its_last_change"
        ),
    ),
    Planted(
        "a foreign lease is released",
        Package.OPERATOR,
        'if lease is not None and _spec_of(lease).get("holderIdentity") == self._identity:\n',
        "if lease is not None:\n",
        "Two operators lead.",
        nodes(
            "unit/operator/test_operator_election.py::test_former_leader_does_not_release_the_lease_of_its_successor"
        ),
    ),
    Planted(
        "a full queue of events fails the step",
        Package.OPERATOR,
        "if self._queue.full():\n    return False\n",
        "",
        "The operator fails because Kubernetes does not answer.",
        nodes(
            "unit/operator/test_operator_process.py::test_events_that_do_not_fit_the_queue_are_dropped_and_fail_no_step"
        ),
    ),
    Planted(
        "a lost authority is replaced",
        Package.OPERATOR,
        "if is_in_use:\n    raise KubeError(\n",
        "if False:\n    raise KubeError(\n",
        "All processes refuse each other's certificates.",
        nodes(
            "unit/operator/test_operator_observer.py::test_issue_certificates_creates_no_authority_while_certificates_of_a_lost_one_exist"
        ),
    ),
    Planted(
        "volume of the write-ahead log is not used",
        Package.OPERATOR,
        '"storage.wal.directory": "/wal"',
        '"storage.wal.directory": "/data"',
        "The log of a pool with a fast volume for it is on the data volume.",
        nodes(
            "unit/operator/test_operator_objects.py::test_engine_of_a_pool_is_a_setting_of_its_storages"
        ),
    ),
    Planted(
        "default engine named in the pods",
        Package.OPERATOR,
        "if spec.engine is Engine.FILES:\n    return {}\n",
        'if spec.engine is Engine.FILES:\n    return {"storage.engine": "files"}\n',
        "An update of the operator restarts the storages of all pools.",
        nodes(
            "unit/operator/test_operator_objects.py::test_default_engine_adds_no_variable_to_the_pods"
        ),
    ),
    Planted(
        "the smallest requested size of a pool is reported",
        Package.OPERATOR,
        "is_smaller(sizes[kind], request)",
        "is_smaller(request, sizes[kind])",
        "A pool may be made smaller than its volumes.",
        nodes(
            "unit/operator/test_operator_growth.py::test_status_has_the_largest_size_that_a_claim_of_the_pool_requests"
        ),
    ),
)
