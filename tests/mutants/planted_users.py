"""Bugs in what users meet first: diagnosis, connecting, followed states, input; hunted by tests."""

from __future__ import annotations

from tests.mutants.planting import Package, Planted, nodes

USER_BUGS = (
    Planted(
        "a check reports its first problem only",
        Package.ADMIN,
        "Finding(each, check, tuple(rule(facts, each)))",
        "Finding(each, check, tuple(rule(facts, each))[:1])",
        "Of two dead storages one is named, and the administrator starts one.",
        nodes(
            "unit/admin/test_operations_verification.py::test_checks_name_every_dead_process_and_nothing_that_follows_from_it"
        ),
    ),
    Planted(
        "a bundle has the private keys of logs",
        Package.ADMIN,
        'text = key.sub(rf"-----\\1 {REMOVED}-----", text)\n',
        "pass\n",
        "A bundle that is sent to others has secrets.",
        nodes(
            "unit/admin/test_operations_debug_bundle.py::test_secrets_are_removed_and_the_rest_is_kept"
        ),
    ),
    Planted(
        "a client without TLS is not recognized",
        Package.CLIENT,
        "if not tls.enabled and await _speaks_tls(host, port):\n",
        "if False:\n",
        "A client without TLS at servers with TLS waits in silence.",
        nodes(
            "unit/client/test_client_tls_check.py::test_plain_client_at_a_port_with_tls_is_an_error"
        ),
    ),
    Planted(
        "a followed state decides by the newest mark",
        Package.CLIENT,
        "mark = followed.mark\n",
        "mark = attempt.mark\n",
        "Locks do not refuse a decision that an outdated state has made.",
        nodes(
            "unit/client/test_client_follower.py::test_decision_is_checked_against_the_state_it_was_made_by"
        ),
    ),
    Planted(
        "a follower does not wait for the conflicting transaction",
        Package.CLIENT,
        "await followed.wait_until_applied(attempt.conflict)\n",
        "await followed.wait_until_started()\n",
        "A decision is repeated by the same outdated state.",
        nodes(
            "unit/client/test_client_follower.py::test_decision_is_checked_against_the_state_it_was_made_by"
        ),
    ),
    Planted(
        "leaving a follower cancels the transaction that is being applied",
        Package.CLIENT,
        "await asyncio.gather(*self._tasks)\n",
        "await asyncio.sleep(0)\n",
        "A state is left half changed.",
        nodes(
            "unit/client/test_client_follower.py::test_stopping_waits_for_the_transaction_that_is_being_applied"
        ),
    ),
    Planted(
        "a truncated record of the input is appended",
        Package.CLI,
        "if len(content) < length:\n",
        "if len(content) > length:\n",
        "Half of a record is appended as a whole one.",
        nodes(
            "unit/cli/test_cli_append_input.py::test_input_that_ends_within_a_record_fails_after_its_whole_records"
        ),
    ),
    Planted(
        "a benchmark does not ask",
        Package.CLI,
        'f"{format_partitions(partitions)} of {where.root} in {where.zookeeper}, and cannot be "\n'
        '"removed",\n'
        "yes=yes,\n",
        'f"{format_partitions(partitions)} of {where.root} in {where.zookeeper}, and cannot be "\n'
        '"removed",\n'
        "yes=True,\n",
        "Random records that nothing can remove are appended to a log in use.",
        nodes("unit/cli/test_cli_bench.py::test_bench_that_writes_asks_and_stops_without_a_yes"),
    ),
    Planted(
        "a followed state that advances during a decision hides its conflict",
        Package.CLIENT,
        "return replace(draft, mark=mark)\n",
        "return replace(draft, mark=followed.mark)\n",
        "A decision by an older state is committed over a transaction it has not seen.",
        nodes(
            "unit/client/test_client_follower.py::test_transaction_applied_while_build_runs_refuses_the_decision"
        ),
    ),
    Planted(
        "a blocking stream repeats the rest of a batch",
        Package.SYNC,
        "self._buffered.clear()\n",
        "pass\n",
        "A reader that changes from transactions to batches gets transactions again and again.",
        nodes(
            "unit/sync/test_client_sync.py::test_sync_client_has_the_methods_of_the_asyncio_client"
        ),
    ),
    Planted(
        "each attempt of submit begins its timeout anew",
        Package.CLIENT,
        "return await append(draft, mark, seconds_left)\n",
        "return await append(draft, mark, seconds)\n",
        "A call with conflicts takes much longer than its timeout.",
        nodes(
            "unit/client/test_client_append_calls.py::test_submit_gives_each_append_only_the_time_that_is_left"
        ),
    ),
    Planted(
        "the timeout of Spark's writer does not limit its appends",
        Package.SPARK,
        "append_timeout=location.timeout_seconds,\n",
        "",
        "Each append waits 30 s, whatever the user has set.",
        nodes(
            "unit/spark/test_spark_writer.py::test_timeout_of_the_location_limits_appends_and_answers"
        ),
    ),
    Planted(
        "a status without ZooKeeper forgets the key of its cluster",
        Package.OPERATOR,
        "cluster_key=old.cluster_key if present is None else str(desired.key),\n",
        'cluster_key="" if present is None else str(desired.key),\n',
        "Metadata that are lost meanwhile are created anew, and storages are cut.",
        nodes(
            "unit/operator/test_operator_plan_guards.py::test_own_key_stays_in_the_status_while_zookeeper_does_not_answer"
        ),
    ),
    Planted(
        "a storage that locks only its log directory counts as stopped",
        Package.STORAGE,
        "for path in (root / CONTROL_FILE, root / DATA_PAIR_FILE, root / LOG_PAIR_FILE):\n",
        "for path in (root / CONTROL_FILE, root / DATA_PAIR_FILE):\n",
        "waltz disk shows a log that changes while it is read.",
        nodes("unit/cli/test_cli_disk.py::test_running_storage_is_refused"),
    ),
    Planted(
        "submit of a follower fails for a transaction that is applied late",
        Package.CLIENT,
        "with contextlib.suppress(AnswerLate, *_FINAL):\n",
        "with contextlib.suppress(*_FINAL):\n",
        "The caller submits a committed transaction again.",
        nodes(
            "unit/client/test_client_follower.py::test_submit_returns_the_id_of_a_transaction_that_is_applied_late"
        ),
    ),
    Planted(
        "a bundle has the passwords in URLs of the environment",
        Package.ADMIN,
        "name: REMOVED if secret.fullmatch(name) else without_secrets(value)\n",
        "name: REMOVED if secret.fullmatch(name) else value\n",
        "The recipients of a bundle can read a password.",
        nodes(
            "unit/admin/test_operations_debug_bundle.py::test_environment_has_only_the_variables_of_the_product_without_secrets"
        ),
    ),
    Planted(
        "a process that ignores its termination is left running",
        Package.LOCAL,
        "        self.kill()\n        return\n",
        "        return\n",
        "It keeps its ports and the lock of its disk after the cluster has stopped.",
        nodes("unit/local/test_local_child.py::test_child_that_ignores_its_termination_is_killed"),
    ),
    Planted(
        "an interrupted start leaves its processes running",
        Package.LOCAL,
        "except BaseException:\n    await self.stop()\n",
        "except Exception:\n    await self.stop()\n",
        "After Ctrl-C, processes run on and the directory is locked.",
        nodes(
            "unit/local/test_local_cluster.py::test_interrupted_start_stops_the_cluster_and_unlocks_its_directory"
        ),
    ),
    Planted(
        "rows without a partition are left out of an import",
        Package.CLI,
        "if None in counts:\n",
        "if set(counts) == {None}:\n",
        "The import reports success, and rows of the file are not in the log.",
        nodes(
            "unit/cli/test_cli_import_sources.py::test_row_without_a_partition_is_refused_beside_rows_that_name_one"
        ),
    ),
    Planted(
        "an import takes a mark that it has not searched up to",
        Package.CLI,
        "self._mark = end\n",
        "self._mark = await self._client.high_water_mark(self._partition)\n",
        "A late append of an earlier run is not noticed, and a row is twice in the log.",
        nodes(
            "unit/cli/test_cli_importing.py::test_append_of_earlier_run_after_the_search_ends_import"
        ),
    ),
    Planted(
        "a silence is dated before the last answer",
        Package.ADMIN,
        "last_answer = max(answered, default=None)",
        "last_answer = min(answered, default=None)",
        "A storage is said to be silent since a time at which it answered.",
        nodes(
            "unit/admin/test_operations_problem_times.py::test_silent_storage_is_dated_by_the_sessions_that_it_takes_part_in"
        ),
    ),
    Planted(
        "the rest of a run goes behind later ones",
        Package.CLIENT,
        "self._buffer.appendleft(run[room:])",
        "self._buffer.append(run[room:])",
        "A stream delivers transactions out of order.",
        nodes(
            "unit/client/test_client_streams.py::test_batches_of_transactions_that_arrived_in_turns_are_in_order"
        ),
    ),
)
