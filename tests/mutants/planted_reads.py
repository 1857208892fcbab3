"""Bugs to plant into the order and the bounds of reads, hunted by single tests."""

from __future__ import annotations

from tests.mutants.planting import Package, Planted, nodes

_STEPS = "unit/storage/test_storage_read_steps.py::"
_CONNECTIONS = "unit/storage/test_storage_connections.py::"
_DATA = "unit/server/test_server_data_reads.py::"
_CONGESTION = "unit/server/test_server_read_congestion.py::"
_SOURCES = "unit/server/test_server_copy_sources.py::"
_FEEDS = "unit/server/test_server_feeds.py::"
_HEADERS = "unit/storage/test_storage_header_reads.py::"

READ_BUGS = (
    Planted(
        "a list with a damaged record is refused as a whole",
        Package.STORAGE,
        "if next_id == first_id:\n",
        "if True:\n",
        "Two replicas that are damaged in different records cannot fill a third one.",
        nodes("unit/storage/test_storage_damaged_reads.py::test_read_ends_before_a_damaged_record"),
    ),
    Planted(
        "a copy source that failed once is never used again",
        Package.SERVER,
        "(name, first_id) not in self.failures",
        "not times[name]",
        "A recovery waits although two replicas together have all records.",
        nodes(
            "unit/server/test_server_recovery_marks.py::"
            "test_source_that_could_not_be_read_is_asked_for_later_records"
        ),
    ),
    Planted(
        "a lagging replica reads from any of its peers",
        Package.SERVER,
        "[p for p in peers if p.storage in preferred]",
        "peers",
        "It asks a peer that refuses all reads again and again.",
        nodes(_SOURCES + "test_lagging_replica_asks_a_peer_that_refuses_all_reads_once_per_timer"),
    ),
    Planted(
        "a copy source that refuses all reads is asked for each copy",
        Package.SERVER,
        "if times[name] == fewest",
        "if True",
        "A large copy costs a refused request and a warning for each MiB.",
        nodes(_SOURCES + "test_source_that_refuses_all_reads_is_asked_and_logged_once"),
    ),
    Planted(
        "every refused copy is logged",
        Package.SERVER,
        "if source in self._logged:\n",
        "if False:\n",
        "Damaged sources fill the server's log with warnings.",
        nodes(_SOURCES + "test_damaged_sources_are_preferred_to_one_that_refuses_all_reads"),
    ),
    Planted(
        "a replica that failed in an open session stays a copy source",
        Package.SERVER,
        "self.recovery.unreadable.drop(replica.storage)\n",
        "pass\n",
        "Each copy from a storage that hangs waits until its time limit.",
        nodes(_SOURCES + "test_replica_that_failed_in_an_open_session_is_no_source"),
    ),
    Planted(
        "recovered new replicas are no copy sources",
        Package.SERVER,
        "ends |= dict.fromkeys(self.recovered(), self.mark)\n",
        "pass\n",
        "After the loss of all old replicas a recovery waits although the new ones have all.",
        nodes(
            _SOURCES + "test_recovered_new_replicas_are_sources_after_the_last_old_one_has_failed"
        ),
    ),
    Planted(
        "a copy source that could not be read is never tried again",
        Package.SERVER,
        "self.failures.clear()\n",
        "pass\n",
        "A replica waits for the next session although its sources are repaired.",
        nodes(
            "unit/server/test_server_unreadable_sources.py::"
            "test_replica_copies_in_an_open_session_from_sources_that_were_repaired"
        ),
    ),
    Planted(
        "a list of headers that ended early is not continued",
        Package.SERVER,
        "if done.error is None and read.next_id <= read.needed_id:",
        "if False:",
        "A feed reads the same headers again and again, and stops at large records.",
        nodes(_FEEDS + "test_feeds_go_on_although_each_evicts_the_incomplete_block_of_the_others"),
    ),
    Planted(
        "a list of 64 headers ends early",
        Package.STORAGE,
        "not (list_budget.spent and len(headers) >= LEAST_HEADERS)",
        "not list_budget.spent",
        "The feeds of a server of Waltz 0.13.2 may stop at large records.",
        nodes(
            _HEADERS + "test_header_list_of_one_block_is_complete_whatever_the_size_of_the_records"
        ),
    ),
    Planted(
        "a replica that was away gets all reads",
        Package.SERVER,
        "replica.read_load = max(replica.read_load, least_loaded.read_load)\n",
        "pass\n",
        "After a restart of a storage one replica does the work of three, for long.",
        nodes(
            "unit/server/test_server_choose_replica.py::"
            "test_choose_replica_returned_replica_gets_only_its_share"
        ),
    ),
    Planted(
        "a truncation overtakes a read",
        Package.STORAGE,
        "elif lane.reads:\n",
        "elif lane.reads and head is None:\n",
        "A read continues in a log that was cut after its first step.",
        nodes(_STEPS + "test_truncation_waits_for_the_reads_that_arrived_before_it"),
    ),
    Planted(
        "an append waits for all reads",
        Package.STORAGE,
        "isinstance(head, AppendJob) and not (lane.reads and lane.is_read_due)",
        "isinstance(head, AppendJob) and not lane.reads",
        "Ten thousand reads of old transactions delay each append.",
        nodes(_STEPS + "test_append_waits_for_one_step_of_a_read"),
    ),
    Planted(
        "appends stop a read",
        Package.STORAGE,
        "isinstance(head, AppendJob) and not (lane.reads and lane.is_read_due)",
        "isinstance(head, AppendJob)",
        "A read is never answered while appends arrive.",
        nodes(_STEPS + "test_appends_do_not_stop_a_read"),
    ),
    Planted(
        "a read is not divided into steps",
        Package.STORAGE,
        "step_bytes = min(max_bytes, STEP_BYTES)",
        "step_bytes = max_bytes",
        "An append waits for a read of 16 MiB.",
        nodes(_STEPS + "test_step_reads_about_a_megabyte"),
    ),
    Planted(
        "an append waits on its connection for reads",
        Package.STORAGE,
        "self._reads.append(first)\n",
        "break\n",
        "Appends wait until the storage has answered the reads before them.",
        nodes(_CONNECTIONS + "test_append_overtakes_reads_that_wait_for_other_reads"),
    ),
    Planted(
        "reads that wait do not stop the reading of their connection",
        Package.STORAGE,
        "len(self._reads) > MOST_WAITING_READS",
        "False",
        "Reads that wait fill the memory of the storage.",
        nodes(
            _CONNECTIONS
            + "test_connection_with_too_many_requests_is_not_read_until_they_are_answered"
        ),
    ),
    Planted(
        "an answered read keeps its weight",
        Package.STORAGE,
        "self._read_weight -= weight\n",
        "",
        "After some time a connection takes no reads.",
        nodes(
            _CONNECTIONS
            + "test_connection_with_too_many_requests_is_not_read_until_they_are_answered"
        ),
    ),
    Planted(
        "a storage gets all reads at once",
        Package.SERVER,
        "if n >= READS_PER_STORAGE)",
        "if n >= 1000)",
        "Appends wait behind reads on the connection to the storage.",
        nodes(
            "unit/server/test_server_store_reads.py::test_reads_under_way_are_bounded_at_each_storage"
        ),
    ),
    Planted(
        "a read whose replicas are busy is lost",
        Package.SERVER,
        "self._waiting.extendleft(reversed(passed))\n",
        "",
        "A client gets no answer.",
        nodes(
            "unit/server/test_server_store_reads.py::test_reads_whose_only_replica_is_busy_wait_for_it"
        ),
    ),
    Planted(
        "data are sent to a congested connection",
        Package.SERVER,
        "while client.queue and not peer.congested:\n",
        "while client.queue:\n",
        "One chunk of requests queues gigabytes of answers.",
        nodes(_CONGESTION + "test_chunk_of_requests_for_a_megabyte_queues_few_answers"),
    ),
    Planted(
        "frames beyond the write buffer wait for the end of the turn",
        Package.NET,
        "if self._outgoing_bytes > _WRITE_HIGH_WATER_BYTES:\n    self._flush()\n",
        "",
        "One chunk of requests queues gigabytes of answers before the connection is congested.",
        nodes(
            "unit/net/test_net_connection.py::test_frames_beyond_the_write_buffer_are_written_at_once",
            _CONGESTION + "test_chunk_of_requests_for_a_megabyte_queues_few_answers",
        ),
    ),
    Planted(
        "a connection with a long queue of reads is read",
        Package.SERVER,
        "if self._peer.has_long_queue:\n    self._host.pause_client(self._ready_connection())\n",
        "",
        "Requests fill the memory of the server.",
        nodes(_CONGESTION + "test_chunk_of_requests_for_a_megabyte_queues_few_answers"),
    ),
    Planted(
        "a writable connection gets no data",
        Package.SERVER,
        "self._data.writable(peer)\n",
        "",
        "Requests that waited for a congested connection are never answered.",
        nodes(_CONGESTION + "test_chunk_of_requests_for_a_megabyte_queues_few_answers"),
    ),
    Planted(
        "records that an answer did not have are not read",
        Package.SERVER,
        "self._plan_reads_of_missing(window)\n",
        "",
        "Requests for the records at the end of a window are never answered.",
        nodes(_DATA + "test_read_continues_where_an_answer_ended_early"),
    ),
    Planted(
        "each transaction is read separately",
        Package.SERVER,
        "count = min(self._window_size(), self._mark + 1 - first_id)\n",
        "count = 1\n",
        "A storage does one read for each request.",
        nodes(_DATA + "test_cold_reads_in_any_order_are_merged_into_few_lists"),
    ),
    Planted(
        "a partition that does not open keeps long queues",
        Package.SERVER,
        "case SessionDelayed():\n    self._data.session_delayed()\n",
        "case SessionDelayed():\n    pass\n",
        "A client's requests to other partitions wait for a partition without a quorum.",
        nodes(
            "unit/server/test_server_partition_reads.py::test_long_queue_of_reads_is_shortened_when_the_recovery_is_overdue"
        ),
    ),
    Planted(
        "reads that wait are not served when the session opens",
        Package.SERVER,
        "self._confirmed = True\nself._serve_arrived(mark)\n",
        "self._confirmed = True\n",
        "A stream stalls after a failover until the next append.",
        nodes(
            "unit/server/test_server_range_reads.py::test_waiting_range_read_gets_transactions_of_another_owner_when_the_session_opens"
        ),
    ),
    Planted(
        "a partition without a session keeps the reads of a connection",
        Package.SERVER,
        "self._ranges.session_delayed()\n",
        "pass\n",
        "A client's reads of other partitions wait for a partition without a quorum.",
        nodes(
            "unit/server/test_server_range_reads.py::test_range_reads_of_a_partition_without_a_session_leave_other_partitions_their_reads"
        ),
    ),
    Planted(
        "repeated reads of one transaction count as one when they end",
        Package.SERVER,
        "client.num_waiting -= len(req_ids)\n",
        "client.num_waiting -= 1\n",
        "After some time, only one request of a connection waits for reads at a time.",
        nodes(
            "unit/server/test_server_data_reads.py::test_repeated_reads_of_one_transaction_do_not_use_up_the_bound_of_a_connection"
        ),
    ),
    Planted(
        "an answer goes on after a batch of which only a part fits",
        Package.SERVER,
        "complete = part.count == self._batches[at].count\n",
        "complete = part.count > 0\n",
        "An answer has a gap: records are missing in its middle.",
        nodes(
            "unit/server/test_server_recent_records.py::test_range_has_no_gap_and_ends_at_its_bounds"
        ),
    ),
)
