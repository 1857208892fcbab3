"""Bugs in the failure paths of shells: local clusters, console, commands, Spark, operator."""

from __future__ import annotations

from tests.mutants.planting import Package, Planted, nodes

OUTER_BUGS = (
    Planted(
        "processes of a directory whose path begins alike are ended",
        Package.LOCAL,
        'f"{directory.resolve()}/"',
        'f"{directory.resolve()}"',
        "The end of one cluster kills a process of another cluster.",
        nodes(
            "unit/local/test_local_control.py::test_process_of_a_directory_whose_path_begins_alike_is_not_left_over"
        ),
    ),
    Planted(
        "a process whose command line is unknown counts as one of another cluster",
        Package.LOCAL,
        "if unknown:\n",
        "if False:\n",
        "The description of processes that still run is deleted.",
        nodes(
            "unit/local/test_local_control.py::test_down_that_cannot_check_a_process_keeps_the_description"
        ),
    ),
    Planted(
        "a ports file of an earlier run counts as ready",
        Package.LOCAL,
        "self._ports_file.unlink(missing_ok=True)\n",
        "",
        "A process that fails at its start is reported as running.",
        nodes(
            "unit/local/test_local_child.py::test_child_is_not_ready_by_the_ports_file_of_an_earlier_run"
        ),
    ),
    Planted(
        "a second signal interrupts the cleanup of a start",
        Package.LOCAL,
        "if not interrupted:\n    interrupted = True\n",
        "if True:\n    interrupted = True\n",
        "Processes of the cluster are left.",
        nodes(
            "unit/local/test_local_supervisor.py::test_second_signal_during_the_start_does_not_interrupt_the_cleanup"
        ),
    ),
    Planted(
        "a signal at the end of a start cancels what follows it",
        Package.LOCAL,
        "if started:\n    stop.set()\n    return\n",
        "",
        "The supervisor of a local cluster ends with an error.",
        nodes(
            "unit/local/test_local_supervisor.py::test_signal_at_the_end_of_the_start_stops_the_cluster_quietly"
        ),
    ),
    Planted(
        "an old mark one below the start of a read is believed",
        Package.SPARK,
        "if marks[partition] < start - 1:\n",
        "if marks[partition] < start - 2:\n",
        "A stream goes back and reads a transaction twice.",
        nodes(
            "unit/spark/test_spark_log_reader.py::test_mark_below_the_start_of_a_read_is_confirmed"
        ),
    ),
    Planted(
        "a file in the environment overrides the profile of the command line",
        Package.CLI,
        "overridden = values.keys() - typed\n",
        'overridden = {"profile"}\n',
        "A command works on another cluster than the one that was typed.",
        nodes(
            "unit/cli/test_cli_profile.py::test_option_that_names_a_cluster_overrides_the_environment"
        ),
    ),
    Planted(
        "the settings file of the command line is changed by variables of another cluster",
        Package.CLI,
        'if not _is_typed(ctx, "cluster"):\n',
        "if True:\n",
        "A command works on another cluster than the one that was typed.",
        nodes(
            "unit/cli/test_cli_profile.py::test_typed_file_or_profile_ignores_variables_of_another_cluster"
        ),
    ),
    Planted(
        "a profile of the environment changes the cluster of a typed ZooKeeper",
        Package.CLI,
        'overridden = {"cluster", "profile"}\n',
        'overridden = {"cluster"}\n',
        "A command works on another root of the ZooKeeper that was typed.",
        nodes(
            "unit/cli/test_cli_profile.py::test_typed_zookeeper_ignores_file_and_profile_of_the_environment"
        ),
    ),
    Planted(
        "a rescue writes a decision that the user has not seen",
        Package.CLI,
        "if now.decision != before.decision\n",
        "if now.decision.verdict != before.decision.verdict\n",
        "Metadata are written that the user has not confirmed.",
        nodes(
            "unit/cli/test_cli_rescue.py::test_rescue_writes_only_the_decision_that_the_user_has_seen"
        ),
    ),
    Planted(
        "access rules are switched off without a yes",
        Package.CLI,
        'confirm(f"all grants of the cluster at {where.root} will be deleted", yes=yes)\n',
        'confirm(f"all grants of the cluster at {where.root} will be deleted", yes=True)\n',
        "Every request is allowed after a refused confirmation.",
        nodes("unit/cli/test_cli_confirmation.py::test_deletion_asks_and_stops_without_a_yes"),
    ),
    Planted(
        "a failed client of the console is used again",
        Package.CONSOLE,
        "except (ClientFailed, ClientClosed):\n",
        "except ClientClosed:\n",
        "The console shows no log until it is started again.",
        nodes(
            "unit/console/test_console_log_reader.py::test_page_after_a_failure_is_read_by_a_new_client"
        ),
    ),
    Planted(
        "an authority that another operator has created is replaced",
        Package.OPERATOR,
        "await kube.create(created)\n",
        "await kube.apply(created)\n",
        "Processes refuse the certificates of each other.",
        nodes(
            "unit/operator/test_operator_executor.py::test_authority_that_another_operator_has_created_is_not_replaced"
        ),
    ),
    Planted(
        "a cluster is at rest after a failed reconcile",
        Package.OPERATOR,
        "self._resting.pop((namespace, name), None)\n"
        "failing_since = self._failing_since.pop((namespace, name), None)\n",
        "failing_since = self._failing_since.pop((namespace, name), None)\n",
        "A change of the resource has no effect for ten minutes.",
        nodes(
            "unit/operator/test_operator_resting.py::test_failed_reconcile_of_a_cluster_at_rest_is_followed_by_a_reconcile"
        ),
    ),
    Planted(
        "the Lease is released while reconciles run",
        Package.OPERATOR,
        "await controller.close()\n",
        "",
        "Two operators change one cluster at the same time.",
        nodes(
            "unit/operator/test_operator_main.py::test_lease_is_released_after_the_last_reconcile"
        ),
    ),
    Planted(
        "a client with a connection counts as idle",
        Package.SERVER,
        "return not self.connections and (self.bucket is None or self.bucket.is_full(now))\n",
        "return self.bucket is None or self.bucket.is_full(now)\n",
        "A client opens more connections than its quota allows.",
        nodes(
            "unit/server/test_server_client_quotas.py::test_client_with_a_connection_is_not_forgotten"
        ),
    ),
    Planted(
        "a refused peer may keep its connection",
        Package.STORAGE,
        "asyncio.get_running_loop().call_later(_REFUSED_SECONDS, connection.close, why)\n",
        "",
        "A peer without the right uses up the connections of a storage.",
        nodes(
            "unit/storage/test_storage_node.py::test_peer_is_refused_on_the_port_that_does_not_allow_its_name"
        ),
    ),
    Planted(
        "a storage with damaged partitions is ready",
        Package.STORAGE,
        "return healthy and not waiting, report\n",
        "return not waiting, report\n",
        "A rolling change goes on although a replica is away.",
        nodes("unit/storage/test_storage_node.py::test_health_names_file_and_offset_of_damage"),
    ),
    Planted(
        "a damaged control entry is that of no partition",
        Package.STORAGE,
        "is_assigned = any(isinstance(entry, str) or entry.info.assigned for entry in entries)\n",
        "is_assigned = any(not isinstance(each, str) and each.info.assigned for each in entries)\n",
        "`waltz disk flatten` succeeds although the log is lost.",
        nodes(
            "unit/storage/test_storage_flattening.py::test_directory_that_has_lost_its_log_and_its_control_entries_is_refused"
        ),
    ),
    Planted(
        "an older storage ends a read from replicas",
        Package.CLIENT,
        "except (ConnectionLost, DialFailed, RemoteFailure, UnsupportedByPeer):\n"
        "    return None\n"
        "return answer.records if answer.records.count else None\n",
        "except (ConnectionLost, DialFailed, RemoteFailure):\n"
        "    return None\n"
        "return answer.records if answer.records.count else None\n",
        "A read fails instead of using another replica.",
        nodes(
            "unit/client/test_client_replica_reader.py::test_replica_without_an_answer_is_replaced_by_the_other"
        ),
    ),
    Planted(
        "a session that has begun counts as opened",
        Package.ADMIN,
        "return newest_first[needed - 1] if len(newest_first) >= needed else NO_SESSION\n",
        "return metadata.session_id\n",
        "A rescue regards intact replicas as outdated.",
        nodes(
            "unit/admin/test_operations_rescue.py::test_session_that_has_begun_and_not_opened_is_not_the_last_opened_one"
        ),
    ),
    Planted(
        "a partition with one switch off is available",
        Package.PROTOCOL,
        "return self.readable and self.writable\n",
        "return self.readable or self.writable\n",
        "No order switches the replica on again.",
        nodes(
            "unit/protocol/test_protocol_messages.py::test_partition_with_one_switch_off_is_not_available"
        ),
    ),
    Planted(
        "the end of a process is dated anew",
        Package.LOCAL,
        "return {name: known.get(name, now) for name, pid in pids.items() if pid is None}\n",
        "return {name: now for name, pid in pids.items() if pid is None}\n",
        "`waltz doctor` says that a problem has just begun.",
        nodes(
            "unit/local/test_local_plan.py::test_end_of_a_process_keeps_its_time_until_the_process_runs_again"
        ),
    ),
    Planted(
        "replicas that wait count as filled",
        Package.OPERATOR,
        "if num_done == len(partitions):\n",
        "if num_done + len(waits) == len(partitions):\n",
        "A replacement ends although replicas are missing.",
        nodes(
            "unit/operator/test_operator_healing.py::test_replicas_that_wait_for_a_source_are_not_compared_yet"
        ),
    ),
    Planted(
        "a filled replica is filled again for a small lag",
        Package.ADMIN,
        "lag_allowed = observation.lag_allowed * (_LAG_FACTOR_ON if was_filled else 1)\n",
        "lag_allowed = observation.lag_allowed\n",
        "With a fast log, a recovery never ends.",
        nodes(
            "unit/admin/test_operations_health.py::test_filled_replica_that_is_on_may_lag_ten_times_as_much"
        ),
    ),
    Planted(
        "a rescue lowers the session of a partition without replicas",
        Package.ADMIN,
        "if present.value.replicas or present.value.session_id >= wanted.session_id:\n",
        "if present.value.replicas:\n",
        "Two servers begin sessions with the same id.",
        nodes(
            "unit/admin/test_operations_rescue_znodes.py::test_rescue_gives_no_session_again_that_another_rescue_has_given"
        ),
    ),
)
