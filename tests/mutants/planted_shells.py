"""Bugs to plant into the shells of server, storage and clients, hunted by tests."""

from __future__ import annotations

from tests.mutants.planting import Package, Planted, nodes

SHELL_BUGS = (
    Planted(
        "reading the metadata has no deadline",
        Package.SERVER,
        "async with asyncio.timeout(_METADATA_SECONDS):\n"
        "    metadata = await self._cluster.partition_metadata(self.core.id)\n",
        "async with asyncio.timeout(None):\n"
        "    metadata = await self._cluster.partition_metadata(self.core.id)\n",
        "A partition waits forever for a ZooKeeper that does not answer.",
        nodes(
            "unit/server/test_server_hosted_partition.py::test_metadata_operation_without_an_answer_fails_at_its_deadline"
        ),
    ),
    Planted(
        "a crash of a decoder ends the server",
        Package.NET,
        "    return decode(*message)\nexcept Exception as error:\n",
        "    return decode(*message)\nexcept UnicodeError as error:\n",
        "One malformed message ends all servers, one after the other.",
        nodes(
            "unit/server/test_server_client_connection.py::test_decoder_error_closes_only_its_own_connection"
        ),
    ),
    Planted(
        "an answer that crashes a decoder ends the server",
        Package.NET,
        "    answer = decode(body, version)\nexcept Exception as error:\n",
        "    answer = decode(body, version)\nexcept UnicodeError as error:\n",
        "One malformed answer of a storage ends all servers, one after the other.",
        nodes("unit/net/test_net_rpc.py::test_rpc_decoder_error_closes_only_the_connection"),
    ),
    Planted(
        "a failed client's stream does not yield the data that have arrived",
        Package.CLIENT,
        "if self._request_client.ended:\n",
        "if False:\n",
        "An application does not get transactions that have arrived before the failure.",
        nodes(
            "unit/client/test_client_opening.py::test_stream_of_a_failed_client_yields_the_data_from_older_servers"
        ),
    ),
    Planted(
        "a crash of a decoder ends the storage",
        Package.STORAGE,
        "request = decode_received(storage.decode, body, version)\n",
        "request = storage.decode(body, version)\n",
        "One malformed message ends all storages, one after the other.",
        nodes(
            "unit/storage/test_storage_connections.py::test_unexpected_error_in_decoding_makes_a_server_request_malformed"
        ),
    ),
    Planted(
        "a node does not follow later generations",
        Package.SERVER,
        "    hosted.core.set_replicas(self._assignments.storages_of(partition))\n"
        "hosted.core.set_generation(generation)\n",
        "    hosted.core.set_replicas(self._assignments.storages_of(partition))\n"
        "    hosted.core.set_generation(generation)\n",
        "A partition that left and came back answers NOT_READY forever.",
        nodes(
            "unit/server/test_server_node.py::test_later_generations_reach_a_partition_that_the_server_keeps"
        ),
    ),
    Planted(
        "a node does not follow changes of replicas",
        Package.SERVER,
        "hosted.core.set_replicas(assignments.storages_of(partition))\n",
        "pass\n",
        "A server writes to the replicas of an old assignment.",
        nodes("unit/server/test_server_node.py::test_changes_of_replicas_reach_the_partitions"),
    ),
    Planted(
        "a storage that does not answer stays connected",
        Package.SERVER,
        "_ANSWER_SECONDS = 10.0\n",
        "_ANSWER_SECONDS = 100.0\n",
        "A hung storage delays appends.",
        nodes(
            "unit/server/test_server_storage_links.py::test_storage_that_leaves_a_request_unanswered_is_disconnected"
        ),
    ),
    Planted(
        "an unused link stays open",
        Package.SERVER,
        "if not link.users:\n    self._drop(name)\n",
        "",
        "A server stays connected to storages that left the cluster.",
        nodes(
            "unit/server/test_server_storage_links.py::test_partitions_share_one_connection_until_the_last_releases_it"
        ),
    ),
    Planted(
        "a partition is not informed of an open connection",
        Package.SERVER,
        "if link.connected:\n    user.storage_up(name)\n",
        "",
        "The second partition of a server never uses its replicas.",
        nodes(
            "unit/server/test_server_storage_links.py::test_partitions_share_one_connection_until_the_last_releases_it"
        ),
    ),
    Planted(
        "a lost connection leaves its requests without an answer",
        Package.SERVER,
        "self._loop.call_soon(user.answered, self.storage, request, None, 0.0)\nreturn\n",
        "return\n",
        "A session waits forever for a storage.",
        nodes(
            "unit/server/test_server_storage_links.py::test_request_while_the_link_is_down_is_answered_with_none"
        ),
    ),
    Planted(
        "a lost client stays in its partitions",
        Package.SERVER,
        "hosted.core.lost(self._peer)\n",
        "pass\n",
        "Feeds of clients that left are kept forever.",
        nodes(
            "unit/server/test_server_congested_clients.py::test_lost_client_is_reported_to_the_server_and_every_partition"
        ),
    ),
    Planted(
        "a feed is sent to a client that does not read",
        Package.SERVER,
        "self._peer.congested = True\n",
        "pass\n",
        "The memory of the server fills.",
        nodes(
            "unit/server/test_server_congested_clients.py::test_congested_client_is_marked_until_it_reads_again"
        ),
    ),
    Planted(
        "a client that reads again gets nothing",
        Package.SERVER,
        "hosted.core.writable(self._peer)\n",
        "pass\n",
        "Its feed stops forever.",
        nodes(
            "unit/server/test_server_congested_clients.py::test_client_no_longer_congested_is_reported_to_every_partition"
        ),
    ),
    Planted(
        "an append that follows another request overtakes it",
        Package.SERVER,
        "self._append(appends, must_check)\nappends = {}\n",
        "",
        "A flush is answered before the appends that were sent before it.",
        nodes(
            "unit/server/test_server_client_connection.py::test_appends_and_a_flush_in_one_chunk_keep_their_order"
        ),
    ),
    Planted(
        "a paused client is never read again",
        Package.SERVER,
        "for connection in resumed:\n    connection.resume_reading()\n",
        "",
        "After an overload its appends are not received.",
        nodes(
            "unit/server/test_server_node.py::test_overloaded_connections_are_resumed_when_no_partition_is_overloaded"
        ),
    ),
    Planted(
        "a server that stops waits for partitions without a session",
        Package.SERVER,
        "h.core.open_appends for h in self.partitions() if h.core.store.is_open\n",
        "h.core.open_appends for h in self.partitions()\n",
        "The stop is delayed by appends that another server resolves.",
        nodes(
            "unit/server/test_server_stopping.py::test_stop_does_not_wait_for_a_partition_without_a_session"
        ),
    ),
    Planted(
        "a server stops without finishing its appends",
        Package.SERVER,
        "await self._finish_appends()\n",
        "",
        "Clients look up appends that could have been answered.",
        nodes(
            "unit/server/test_server_stopping.py::test_stop_closes_partitions_after_their_appends_are_resolved"
        ),
    ),
    Planted(
        "the names in a directory are not flushed",
        Package.STORAGE,
        "os.fsync(fd)\n",
        "pass\n",
        "A loss of power removes a segment.",
        nodes(
            "unit/storage/test_storage_posix_disk.py::test_flush_directory_flushes_that_directory"
        ),
    ),
    Planted(
        "the content of a file is not flushed",
        Package.STORAGE,
        "os.fdatasync(self._fd)\n",
        "pass\n",
        "A loss of power removes acknowledged transactions.",
        nodes(
            "unit/storage/test_storage_posix_disk.py::test_flush_and_write_durably_flush_the_file"
        ),
    ),
    Planted(
        "a short write is not continued",
        Package.STORAGE,
        "while written < len(data):\n"
        "    written += os.pwrite(self._fd, memoryview(data)[written:], offset + written)\n",
        "",
        "The end of a record is missing on the disk.",
        nodes("unit/storage/test_storage_posix_disk.py::test_write_continues_after_a_short_write"),
    ),
    Planted(
        "a short read is not continued",
        Package.STORAGE,
        "if len(data) == length or not data:\n",
        "if data or not length:\n",
        "The end of a large read is missing.",
        nodes("unit/storage/test_storage_posix_disk.py::test_read_continues_after_a_short_read"),
    ),
    Planted(
        "a full disk counts as a failed disk",
        Package.STORAGE,
        "if error.errno in _FULL:\n",
        "if error.errno in _LOCKED:\n",
        "A storage without space ends instead of refusing appends.",
        nodes(
            "unit/storage/test_storage_posix_disk.py::test_failed_write_says_whether_the_disk_is_full"
        ),
    ),
    Planted(
        "a failed flush of a round is not raised",
        Package.STORAGE,
        "for future in flushing:\n    future.result()\n",
        "",
        "A storage with a failed disk continues.",
        nodes(
            "unit/storage/test_storage_engine.py::test_failed_flush_of_one_partition_fails_the_round"
        ),
    ),
    Planted(
        "the first of several flushes makes a round durable",
        Package.STORAGE,
        "is_last = self._remaining == 0\n",
        "is_last = self._remaining <= 1\n",
        "An append is acknowledged before its index is flushed.",
        nodes(
            "unit/storage/test_storage_engine.py::test_round_part_is_durable_after_all_its_flushes"
        ),
    ),
    Planted(
        "the engine continues after a failed flush",
        Package.STORAGE,
        "self._failed.set()\n",
        "",
        "Appends after the failure are acknowledged.",
        nodes(
            "unit/storage/test_storage_engine.py::test_engine_thread_after_failed_session_answers_nothing"
        ),
    ),
    Planted(
        "a storage reads on while requests wait",
        Package.STORAGE,
        "if must_pause and not self._is_paused:\n",
        "if must_pause and self._is_paused:\n",
        "Requests fill the memory of the storage.",
        nodes(
            "unit/storage/test_storage_connections.py::test_connection_with_too_many_requests_is_not_read_until_they_are_answered"
        ),
    ),
    Planted(
        "a storage never reads a paused connection again",
        Package.STORAGE,
        "elif self._is_paused and not must_pause:\n    connection.resume_reading()\n",
        "",
        "A server whose requests waited gets no answers.",
        nodes(
            "unit/storage/test_storage_connections.py::test_connection_with_too_many_requests_is_not_read_until_they_are_answered"
        ),
    ),
    Planted(
        "an answered request keeps its weight",
        Package.STORAGE,
        "self._weight -= weight\nif self._waiting:\n",
        "if self._waiting:\n",
        "After some time a connection takes no requests.",
        nodes(
            "unit/storage/test_storage_connections.py::test_connection_with_too_many_bytes_of_appends_is_not_read_until_they_are_answered"
        ),
    ),
    Planted(
        "a server of another cluster is accepted",
        Package.STORAGE,
        "if key != self.key:\n",
        "if not key:\n",
        "It overwrites the log of this cluster.",
        nodes("unit/storage/test_storage_node.py::test_connection_of_another_cluster_is_refused"),
    ),
    Planted(
        "the last of several results is the answer",
        Package.STORAGE,
        "max(self._results, key=_severity)",
        "self._results[-1]",
        "An administrator sees success although a partition failed.",
        nodes(
            "unit/storage/test_storage_admin_handler.py::test_unassign_request_that_fails_for_one_partition_is_answered_with_the_failure"
        ),
    ),
    Planted(
        "a change begins before all of its partitions are checked",
        Package.STORAGE,
        "self._directory.check_known(partitions)\n",
        "",
        "A request with a wrong partition changes the others.",
        nodes(
            "unit/storage/test_storage_admin_handler.py::test_request_with_an_unknown_partition_changes_no_partition"
        ),
    ),
    Planted(
        "a directory is used twice under two names",
        Package.STORAGE,
        "if path.samefile(config.directory):\n",
        "if path == config.directory:\n",
        "Control file and segments are on one disk although two are configured.",
        nodes(
            "unit/storage/test_storage_node.py::test_control_file_is_in_configured_meta_directory"
        ),
    ),
    Planted(
        "an answer of an older session counts",
        Package.CLIENT,
        "return records if present_metadata.session_id == metadata.session_id else None\n",
        "return records if present_metadata.session_id >= 0 else None\n",
        "Spark reads records that a recovery has cut.",
        nodes(
            "unit/client/test_client_replica_reader.py::test_answer_is_dropped_if_a_session_began_before_it"
        ),
    ),
    Planted(
        "a cancelled append keeps its room",
        Package.CLIENT,
        "if waiter.entered.cancelled():\n    self._admit()\nelse:\n    self.leave(count, size)\n",
        "self._admit()\n",
        "After some timeouts no append is sent any more.",
        nodes(
            "unit/client/test_client_in_flight.py::test_waiter_cancelled_on_entry_returns_its_room"
        ),
    ),
    Planted(
        "a small append overtakes a batch that waits for room",
        Package.CLIENT,
        "if not self._queue and self._fits(count, size):\n",
        "if self._fits(count, size):\n",
        "A large batch waits forever.",
        nodes(
            "unit/client/test_client_in_flight.py::test_large_entry_is_not_overtaken_by_small_entries"
        ),
    ),
    Planted(
        "a mark is inserted again after a race",
        Package.STATE,
        "except IntegrityError:\n",
        "except ZeroDivisionError:\n",
        "The second of two processes that start together fails.",
        nodes(
            "unit/state/test_state_store.py::test_mark_that_another_process_inserts_meanwhile_is_read[sqlite]"
        ),
    ),
    Planted(
        "a transaction whose predecessor is missing is skipped",
        Package.STATE,
        "if mark is None or mark < transaction.id:\n",
        "if mark is None:\n",
        "The state misses a transaction.",
        nodes(
            "unit/state/test_state_store.py::test_transaction_after_a_gap_raises_mark_mismatch[sqlite-0]"
        ),
    ),
    Planted(
        "a rolled-back transaction moves the mark",
        Package.STATE,
        "if not sql_transaction.is_active:\n    raise NotYourTransaction(ROLLBACK)\n",
        "",
        "A transaction counts as applied whose changes were undone.",
        nodes(
            "unit/state/test_state_store.py::test_session_refuses_commit_rollback_and_close[sqlite-<lambda>8]"
        ),
    ),
    Planted(
        "an import continues after another run",
        Package.CLI,
        "if await self.count_imported(self._mark, end):\n",
        "if await self.count_imported(end, self._mark):\n",
        "Rows are imported twice.",
        nodes("unit/cli/test_cli_importing.py::test_append_of_earlier_run_ends_import"),
    ),
    Planted(
        "an import does not lock",
        Package.CLI,
        "drafts = [Draft(row.data, row.header, self._locks) for row in batch]\n",
        "drafts = [Draft(row.data, row.header) for row in batch]\n",
        "Two runs of an import append the same rows.",
        nodes("unit/cli/test_cli_importing.py::test_rows_are_appended_in_one_batch"),
    ),
    Planted(
        "the newest clients get no mark of a partition that is elsewhere",
        Package.SERVER,
        "if peer.version >= MARK_WITHOUT_OWNERSHIP_SINCE:\n",
        "if peer.version > MARK_WITHOUT_OWNERSHIP_SINCE:\n",
        "A client waits for its timeout instead of the next server.",
        nodes(
            "unit/server/test_server_protocol_v5.py::test_every_request_to_a_partition_not_on_this_server_is_answered"
        ),
    ),
    Planted(
        "malformed metadata of a partition end the server",
        Package.SERVER,
        "except (StoreError, MalformedMetadata, TimeoutError) as error:\n",
        "except (StoreError, TimeoutError) as error:\n",
        "One damaged znode ends all servers, one after the other.",
        nodes(
            "unit/server/test_server_hosted_partition.py::test_malformed_metadata_are_reported_and_the_server_continues"
        ),
    ),
    Planted(
        "a storage that hangs after some answers stays connected",
        Package.SERVER,
        "self._deadline_timer = self._loop.call_at(due, self._check_deadline)\n",
        "return\n",
        "A hung storage delays appends.",
        nodes(
            "unit/server/test_server_storage_links.py::test_storage_that_hangs_after_its_first_answers_is_disconnected"
        ),
    ),
    Planted(
        "a client's connection that worked does not reset the backoff",
        Package.CLIENT,
        "self._link.mark_useful()\n",
        "",
        "After some restarts of servers, clients come back only after seconds.",
        nodes(
            "unit/client/test_client_link.py::test_client_dials_soon_after_each_loss_of_a_connection_that_worked"
        ),
    ),
    Planted(
        "the size of a file of an export is never reset",
        Package.CLI,
        "file_transactions, data_bytes = [], 0\n",
        "file_transactions = []\n",
        "After 64 MiB, an export writes a file for each transaction.",
        nodes("unit/cli/test_cli_export.py::test_each_file_has_as_much_as_the_bounds_allow"),
    ),
    Planted(
        "silent storages are noticed once",
        Package.SERVER,
        "self._deadline_timer = None\nrpc = self._link.connection\n",
        "rpc = self._link.connection\n",
        "A storage that hangs blocks its partitions.",
        nodes(
            "unit/server/test_server_storage_links.py::test_storage_that_hangs_after_a_pause_without_requests_is_disconnected"
        ),
    ),
    Planted(
        "an error of a file exits with success",
        Package.CLI,
        'print(f"waltz: {error.filename}: {error.strerror}", file=sys.stderr)  # noqa: T201\n'
        "raise typer.Exit(1) from None\n",
        'print(f"waltz: {error.filename}: {error.strerror}", file=sys.stderr)  # noqa: T201\n'
        "raise typer.Exit(0) from None\n",
        "A script goes on after a failed export.",
        nodes(
            "unit/cli/test_cli_running.py::test_verb_whose_file_cannot_be_used_fails_with_the_name_of_the_file"
        ),
    ),
    Planted(
        "a continued import does not know its own transactions",
        Package.CLI,
        "recorded.client_ids.append(client.client_id)\n",
        "",
        "A continued import appends transactions twice.",
        nodes(
            "unit/cli/test_cli_import_continued.py::test_repeated_import_appends_only_what_the_log_lacks"
        ),
    ),
    Planted(
        "an import of other files is continued",
        Package.CLI,
        "if any(count < 0 for count in num_missing.values()):\n",
        "if False:\n",
        "The log gets a mixture of two exports.",
        nodes(
            "unit/cli/test_cli_import_continued.py::test_repeated_import_appends_only_what_the_log_lacks"
        ),
    ),
    Planted(
        "a server without ZooKeeper stays healthy for hours",
        Package.SERVER,
        "grace_seconds = 2 * node.config.session_timeout_ms / 1000\n",
        "grace_seconds = 2 * node.config.session_timeout_ms\n",
        "No alert tells that a server is cut off from ZooKeeper.",
        nodes(
            "unit/server/test_server_readiness.py::test_server_without_zookeeper_is_unhealthy_after_two_session_timeouts"
        ),
    ),
    Planted(
        "the size of the disk is shown as its free bytes",
        Package.STORAGE,
        "disk_free=lambda: environment.disk_space(config.directory)[0],\n",
        "disk_free=lambda: environment.disk_space(config.directory)[1],\n",
        "The alert about a full disk never fires.",
        nodes(
            "unit/storage/test_storage_node.py::test_free_bytes_and_size_of_the_disk_are_metrics"
        ),
    ),
)
