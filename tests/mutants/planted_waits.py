"""Bugs to plant into waits, wake-ups and retries of all processes, hunted by tests."""

from __future__ import annotations

from tests.mutants.planting import Package, Planted, nodes

_MEMBERSHIP = "unit/metadata/test_metadata_membership_waits.py::"
_RETRY = "unit/metadata/test_metadata_retry.py::"
_CALLS = "unit/client/test_client_append_calls.py::"
_WAL = "unit/storage/test_storage_wal_waits.py::"
_MARKS = "unit/storage/test_storage_flushed_marks_threads.py::"

WAIT_BUGS = (
    Planted(
        "an answer overtakes that of the round before",
        Package.STORAGE,
        "self._mailbox.deliver()\n",
        "pass\n",
        "A server drops a sound storage from its session.",
        nodes(
            "unit/storage/test_storage_engine_shell.py::test_answer_of_a_round_does_not_overtake_that_of_the_round_before"
        ),
    ),
    Planted(
        "acknowledgements count in any order",
        Package.SERVER,
        "if first_id != self.acknowledged + 1:\n    return False\n",
        "",
        "Records that a storage has not acknowledged count as durable.",
        nodes(
            "unit/server/test_server_store_late_answers.py::test_replica_that_answers_out_of_order_is_dropped"
        ),
    ),
    Planted(
        "a former owner answers a flush of a newer generation",
        Package.SERVER,
        "return  # As in `mount`; but the protocol has no answer that refuses a flush.\n",
        "pass\n",
        "A client takes an append for absent that the new owner has committed.",
        nodes(
            "unit/server/test_server_partition.py::test_flush_of_a_future_generation_is_answered_by_the_new_owner_only"
        ),
    ),
    Planted(
        "a partition acquired later uses an old assignment",
        Package.SERVER,
        "self._assignments = assignments\n",
        "pass\n",
        "A server writes to storages that the partition has left.",
        nodes(
            "unit/server/test_server_node_lifecycle.py::test_changed_assignment_is_used_for_partitions_acquired_later"
        ),
    ),
    Planted(
        "a failed client does not wake its streams",
        Package.CLIENT,
        "    self._links.end()\nself._changed.set()\n",
        "    self._links.end()\n",
        "A stream without data waits forever.",
        nodes(
            "unit/client/test_client_streams.py::test_stream_that_waits_raises_the_error_of_its_client[False]"
        ),
    ),
    Planted(
        "a reader of replicas does not connect again",
        Package.CLIENT,
        "return connection is not None and not connection.closed\n",
        "return connection is not None\n",
        "Spark does not read a storage any more that was restarted.",
        nodes(
            "unit/client/test_client_replica_reader.py::test_storage_whose_connection_is_lost_is_connected_again"
        ),
    ),
    Planted(
        "records of a failed pull stay",
        Package.ADMIN,
        "position = await writer.cut()\n",
        "pass\n",
        "The relayed copy begins below the end of the log, and is refused.",
        nodes(
            "unit/admin/test_operations_copy.py::test_records_of_a_request_that_failed_are_cut_before_the_rest_is_relayed"
        ),
    ),
    Planted(
        "an order that makes progress stalls",
        Package.ADMIN,
        "if obstacle is None:\n    last_success = clock()\n",
        "if obstacle is None:\n    pass\n",
        "A long order fails at its first wait.",
        nodes(
            "unit/admin/test_operations_execution.py::test_stall_limit_counts_from_the_last_successful_step"
        ),
    ),
    Planted(
        "the membership is read without a pause",
        Package.METADATA,
        "await wait_at_most(reconnected, next(delays))\n",
        "await asyncio.sleep(0.1)\n",
        "All servers send requests to a ZooKeeper that is overloaded.",
        nodes(_MEMBERSHIP + "test_membership_without_an_answer_is_read_again_after_growing_delays"),
    ),
    Planted(
        "a change of the membership is seen again and again",
        Package.METADATA,
        "self._changed.clear()\n",
        "",
        "A server reads the membership all the time.",
        nodes(_MEMBERSHIP + "test_membership_is_read_once_for_each_change"),
    ),
    Planted(
        "a membership is stopped below its last step",
        Package.METADATA,
        "self._task.cancel()\nawait asyncio.wait([self._task])\n",
        "self._task.cancel()\n",
        "A server that has left creates its znode again.",
        nodes(_MEMBERSHIP + "test_stop_waits_for_the_end_of_the_step_under_way"),
    ),
    Planted(
        "a lost connection ends the pause before a retry",
        Package.METADATA,
        "if state is SessionState.CONNECTED:\n    reconnected.set()\n",
        "reconnected.set()\n",
        "Requests are sent on a connection that is lost.",
        nodes(_RETRY + "test_disconnect_does_not_trigger_retry_before_reconnect"),
    ),
    Planted(
        "an answered operation follows the connection on",
        Package.METADATA,
        "finally:\n        unsubscribe()",
        "finally:\n        pass",
        "Each operation adds a callback to the session.",
        nodes(_RETRY + "test_answered_operation_stops_following_the_connection"),
    ),
    Planted(
        "a wait for the admin lock polls",
        Package.METADATA,
        "await changed.wait()\nreturn False\n",
        "return False\n",
        "Administrators that wait keep ZooKeeper busy.",
        nodes(
            "unit/metadata/test_metadata_admin_lock_wait.py::test_wait_for_the_admin_lock_of_another_process_does_not_poll"
        ),
    ),
    Planted(
        "an append that waited for room begins after the end",
        Package.CLIENT,
        "state = await self._enter(call, 1, size)\ntry:\n    self._check()\n",
        "state = await self._enter(call, 1, size)\ntry:\n    pass\n",
        "The call of a closed client never returns.",
        nodes(_CALLS + "test_close_ends_appends_that_wait_for_room"),
    ),
    Planted(
        "an append overtakes those that wait for the mount",
        Package.CLIENT,
        "async with self._entering[number]:\n"
        "    state = self._partitions.get(number) or await self._begin_mount(number)\n",
        "state = await self._partition(number)\nasync with asyncio.Lock():\n",
        "The first appends of a client are in the log in another order than that of the calls.",
        nodes(_CALLS + "test_appends_called_while_the_partition_is_mounted_keep_their_order"),
    ),
    Planted(
        "a search for an outcome asks no server",
        Package.CLIENT,
        "state.appends.flush()\n        self._perform(state)\n        return await",
        "return await",
        "The outcome is known only after the next long wait.",
        nodes("unit/client/test_client_outcome.py::test_outcome_asks_the_server_at_once"),
    ),
    Planted(
        "a commit does not wake those that wait",
        Package.STORAGE,
        "self._writing = False\nself._changed.notify_all()\n",
        "self._writing = False\n",
        "An append of another partition is never answered.",
        nodes(_WAL + "test_thread_that_waits_for_another_thread_is_woken[commit]"),
    ),
    Planted(
        "checkpoints are made without a pause",
        Package.STORAGE,
        "self._wake.clear()\n",
        "",
        "The flushes of checkpoints compete with those of the log all the time.",
        nodes(_WAL + "test_checkpoint_that_was_asked_for_is_made_once"),
    ),
    Planted(
        "flushes of the marks overlap",
        Package.STORAGE,
        "with self._file.one_flush():\n",
        "if True:\n",
        "A mark counts as durable that is not, and a loss of power removes the durable one.",
        nodes(_MARKS + "test_counters_of_flushes_change_only_under_the_lock_of_the_file"),
    ),
    Planted(
        "durable writes of one file overlap",
        Package.STORAGE,
        "with self._flush_lock:\n",
        "if True:\n",
        "A flush succeeds although the write that it had to flush is lost.",
        nodes(_MARKS + "test_flushes_of_one_file_wait_for_each_other[True]"),
    ),
    Planted(
        "an answer has all damaged ranges of a lost disk",
        Package.STORAGE,
        "islice(damaged, _MAX_RANGES)",
        "islice(damaged, None)",
        "The answer exceeds the largest message.",
        nodes(
            "unit/storage/test_storage_admin_handler.py::test_answer_has_a_bounded_number_of_damaged_ranges"
        ),
    ),
    Planted(
        "a peer that does not answer a pull ends the storage",
        Package.STORAGE,
        "    RemoteFailure,\n    TimeoutError,\n    TlsConfigError,\n) as problem:\n",
        "    RemoteFailure,\n    TlsConfigError,\n) as problem:\n",
        "The administrator gets no answer.",
        nodes(
            "unit/storage/test_storage_pull.py::test_pull_from_a_peer_that_does_not_answer_is_refused"
        ),
    ),
    Planted(
        "a peer that hangs after the connection holds up a pull forever",
        Package.STORAGE,
        "async with asyncio.timeout_at(give_up_at):\n"
        "    records = await self._read(peer, request, last_id + 1, counts)\n",
        "async with asyncio.timeout_at(None):\n"
        "    records = await self._read(peer, request, last_id + 1, counts)\n",
        "The administrator gets no answer.",
        nodes(
            "unit/storage/test_storage_pull.py::test_pull_from_a_peer_that_hangs_after_the_connection_is_refused"
        ),
    ),
    Planted(
        "a pull requests the list again that its peer could not deliver",
        Package.STORAGE,
        "counts.lost(request.partition, count)\n",
        "pass\n",
        "A copy from a storage of 0.13.2 with large records never ends.",
        nodes(
            "unit/storage/test_storage_pull_sizes.py::test_pull_after_a_list_that_was_lost_requests_fewer_records"
        ),
    ),
    Planted(
        "a log is cut below a lower mark than the server names",
        Package.STORAGE,
        "if request.low_water_mark != mark:\n",
        "if request.low_water_mark < mark:\n",
        "A server cuts a log whose mark it does not know.",
        nodes(
            "unit/storage/test_storage_truncation.py::test_truncation_that_names_a_wrong_mark_is_refused[5]"
        ),
    ),
    Planted(
        "a mark that is written during a flush is forgotten",
        Package.STORAGE,
        "self._marks_written.clear()\nif self._marks_stopped.is_set():\n    return\n"
        "try:\n    self.engine.directory.flush_marks()\n",
        "if self._marks_stopped.is_set():\n    return\n"
        "try:\n    self.engine.directory.flush_marks()\n    self._marks_written.clear()\n",
        "The mark is not durable before the next append, however late that comes.",
        nodes(
            "unit/storage/test_storage_engine_shell.py::test_mark_written_during_a_flush_of_the_marks_is_flushed_after_it"
        ),
    ),
)
