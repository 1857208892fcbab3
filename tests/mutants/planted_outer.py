"""Bugs in the failure paths of shells: local clusters, console, commands, Spark, operator."""

from __future__ import annotations

from tests.mutants.planting import Package, Planted, nodes

OUTER_BUGS = (
    Planted(
        "processes of a directory whose path begins alike are ended",
        Package.LOCAL,
        'f"{path}/".encode() in command',
        'f"{path}".encode() in command',
        "The end of one cluster kills a process of another cluster.",
        nodes(
            "unit/local/test_local_control.py::test_process_of_a_directory_whose_path_begins_alike_is_not_left_over"
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
        "await self._kube.create(_secret(cluster, secret_name, data))\n",
        "await self._kube.apply(_secret(cluster, secret_name, data))\n",
        "Processes refuse the certificates of each other.",
        nodes(
            "unit/operator/test_operator_executor.py::test_authority_that_another_operator_has_created_is_not_replaced"
        ),
    ),
    Planted(
        "a cluster is at rest after a failed reconcile",
        Package.OPERATOR,
        "self._resting.pop((namespace, name), None)\n"
        'live = await self._kube.get("WaltzCluster", namespace, name)\n',
        'live = await self._kube.get("WaltzCluster", namespace, name)\n',
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
)
