"""Bugs to plant into reads of ranges, hunted by simulated seeds."""

from __future__ import annotations

from tests.mutants.planting import Package, Planted, nodes

RANGE_BUGS = (
    Planted(
        "a stale mark is answered as the log's end",
        Package.SERVER,
        "self._ranges.begin_generation()\n",
        "",
        "A server answers that the log ends, while another owner may have appended to it.",
    ),
    Planted(
        "an empty answer is sent too early",
        Package.SERVER,
        "if self._confirmed:\n    self._answer(read)\n",
        "if self._mark is not None:\n    self._answer(read)\n",
        "An empty answer comes from a partition whose session has not opened.",
    ),
    Planted(
        "a replica is read beyond the mark",
        Package.SERVER,
        "count = last_id - read.first_id + 1\n",
        "count = last_id - read.first_id + 100\n",
        "Records that are answered as committed may be truncated.",
    ),
    Planted(
        "a mark is answered before it is reached",
        Package.SERVER,
        "response = cs.RecordsResponse(request.req_id, None, mark, records)\n",
        "response = cs.RecordsResponse(request.req_id, None, mark + 1, records)\n",
        "The mark of an answer is beyond what is committed.",
    ),
    Planted(
        "a waiting read is lost when the partition moves",
        Package.SERVER,
        "for read in (*due, *self._waiting, *self._stop_reading()):\n",
        "for read in (*due, *self._stop_reading()):\n",
        "The reader is not informed that it waits at the wrong server.",
    ),
    Planted(
        "a waiting read is not served by a commit",
        Package.SERVER,
        "if self._waiting:\n    self._serve_arrived(mark)\n",
        "",
        "Its transactions are committed, and it is answered that there are none.",
    ),
    Planted(
        "a waiting read never times out",
        Package.SERVER,
        "expired = [read for read in self._waiting if read.ticks <= 0]\n",
        "expired = [read for read in self._waiting if read.ticks == 1_000_000]\n",
        "Its time is up, and it gets no answer.",
    ),
    Planted(
        "a read is forgotten with its session",
        Package.SERVER,
        "self._waiting.extendleft(reversed(self._sent))\n",
        "",
        "A read from a replica whose session ended is never repeated.",
    ),
    Planted(
        "batches with a gap between them",
        Package.SERVER,
        "if first_id != self._next_id:\n",
        "if self._next_id is None:\n",
        "Records that another owner committed meanwhile are missing in the memory.",
        nodes(
            "unit/server/test_server_recent_records.py::test_batch_after_a_gap_replaces_all_others"
        ),
    ),
    Planted(
        "a batch in memory is read from its second record on",
        Package.SERVER,
        "skip = first_id - self._first_ids[at]\n",
        "skip = min(first_id - self._first_ids[at] + 1, self._batches[at].count - 1)\n",
        "A range does not begin at the requested id.",
    ),
    Planted(
        "a part of a batch is followed by the next one",
        Package.SERVER,
        "complete = part.count == self._batches[at].count\n",
        "complete = True\n",
        "A range whose bounds end inside a batch continues with the next batch.",
    ),
    Planted(
        "an old storage's list is passed on without bounds",
        Package.SERVER,
        "records = records_within(done.records, 0, read.bounds, at_least_one=True)\n",
        "records = done.records\n",
        "An answer has more records than requested.",
    ),
    Planted(
        "an old storage gets a request that it does not support",
        Package.SERVER,
        "if version >= BOUNDED_LISTS_SINCE:",
        "if version >= 0:",
        "A storage of the older version gets a message of the newer one.",
    ),
    Planted(
        "a lost list of an old storage is requested again at its length",
        Package.SERVER,
        "self._counts.lost(converted.partition, converted.max_records)\n",
        "pass\n",
        "A list that is longer than a frame closes each connection to the storage.",
        nodes(
            "unit/server/test_server_storage_versions.py::test_copy_that_is_lost_with_its_connection_is_repeated_with_fewer_records"
        ),
    ),
    Planted(
        "headers of a range with ids of another",
        Package.SERVER,
        "*range(transaction_id, transaction_id + _ID_BYTES),\n",
        "*range(transaction_id - _ID_BYTES, transaction_id),\n",
        "Headers from memory have other transaction ids.",
    ),
)

_STORED = "unit/client/test_client_stored_ranges.py::"
_LATE = "unit/client/test_client_late_answers.py::"
_READS = "unit/client/test_client_read_requests.py::"
_PASSED_ON = "unit/server/test_server_stored_ranges.py::"

STORED_BUGS = (
    Planted(
        "the checksum of a stored record is not compared",
        Package.CLIENT,
        "or crc32(raw[position:end]) != checksum_at(raw, end)[0]\n",
        "",
        "A damaged header of a record on a disk reaches the application.",
        nodes(_STORED + "test_stored_records_with_each_flipped_bit_are_refused"),
    ),
    Planted(
        "the checksum of stored data is not compared",
        Package.CLIENT,
        "or crc32(raw[start:end]) != data_checksum\n",
        "",
        "Data that were damaged before a storage wrote them reach the application.",
        nodes(
            _STORED
            + "test_stored_records_with_wrong_data_under_a_right_record_checksum_are_refused"
        ),
    ),
    Planted(
        "many stored records are not verified",
        Package.CLIENT,
        "if crc32(raw) != concatenated(whole_crcs, size):\n    return False\n",
        "",
        "Where numpy is loaded, damaged records of one size reach the application.",
        nodes(_STORED + "test_stored_records_with_each_flipped_bit_are_refused"),
    ),
    Planted(
        "the data checksums of many stored records are not compared",
        Package.CLIENT,
        "return shifted(crc32(head_bytes), length) == concatenated(",
        "return True or shifted(crc32(head_bytes), length) == concatenated(",
        "Where numpy is loaded, data that were damaged before the disk reach the application.",
        nodes(
            _STORED
            + "test_stored_records_with_wrong_data_under_a_right_record_checksum_are_refused"
        ),
    ),
    Planted(
        "the ids of stored records are not compared",
        Package.CLIENT,
        "transaction_id != expected_id\nor of_partition != partition\n",
        "of_partition != partition\n",
        "Records of another place of the log reach the application.",
        nodes(_STORED + "test_stored_records_of_another_place_are_refused"),
    ),
    Planted(
        "bytes after the last stored record are ignored",
        Package.CLIENT,
        "return position == len(raw)",
        "return True",
        "The answer has more records than it says, and the reader skips them.",
        nodes(_STORED + "test_stored_records_that_are_cut_or_continued_are_refused"),
    ),
    Planted(
        "a wrong stored range is requested in the same form",
        Package.CLIENT,
        "self.wrong_stored_ranges += 1\nopen_request.trusts_disks = False\n",
        "self.wrong_stored_ranges += 1\n",
        "A reader requests a damaged range for ever, and no storage is asked to verify it.",
        nodes(_STORED + "test_wrong_stored_range_is_requested_again_in_the_verified_form"),
    ),
    Planted(
        "an answer that arrives after the timeout is thrown away",
        Package.CLIENT,
        "if not open_request.sent:\n    self._forget_ids(open_request)\nself._send(open_request)\n",
        "self._forget_ids(open_request)\nself._send(open_request)\n",
        "On a slow connection every answer comes too late, and no read ends.",
        nodes(_LATE + "test_first_answer_to_any_id_of_a_repeated_request_is_its_only_result"),
    ),
    Planted(
        "the answers of a server that has lost the partition confirm each other at once",
        Package.CLIENT,
        "self._pause(open_request, NOT_READY_BACKOFF_SECONDS)\n",
        "self._pause(open_request, 0.01)\n",
        "A read of a range raises ClientAhead for a position that is in the log.",
        nodes(_READS + "test_confirmations_of_a_short_log_are_apart"),
    ),
    Planted(
        "a stored range beyond the mark of its answer is accepted",
        Package.CLIENT,
        "max_records = min(request.max_records, mark + 1 - request.first_id)\n",
        "max_records = request.max_records\n",
        "Records that may still be cut off reach the application.",
        nodes(_STORED + "test_stored_range_beyond_its_own_mark_is_requested_again"),
    ),
    Planted(
        "stored records are requested beyond the mark",
        Package.SERVER,
        "self._partition,\nread.first_id,\nlast_id,\ncount,\n",
        "self._partition,\nread.first_id,\nlast_id + 100,\ncount + 100,\n",
        "Records that may still be cut off are answered as committed.",
        nodes(_PASSED_ON + "test_stored_range_never_goes_beyond_the_mark"),
    ),
    Planted(
        "stored records beyond the bounds are passed on",
        Package.SERVER,
        "or (1 < stored.count <= request.max_records and len(stored.raw) <= request.max_bytes)\n",
        "or stored.count > 1\n",
        "An answer has more records or bytes than its client has requested.",
        nodes(_PASSED_ON + "test_stored_range_that_breaks_its_bounds_is_read_from_another_replica"),
    ),
    Planted(
        "an old storage is asked for stored records",
        Package.SERVER,
        "if isinstance(request, st.StoredRecordListRequest) and version < STORED_LISTS_SINCE:\n",
        "if isinstance(request, st.StoredRecordListRequest) and version < 0:\n",
        "A storage of an older version gets a message that it does not know.",
        nodes(
            "unit/server/test_server_storage_versions.py::test_records_in_disk_form_are_requested_in_wire_form_from_older_storages"
        ),
    ),
    Planted(
        "a range ahead answers any request",
        Package.SERVER,
        "if not _is_expected(read.request, ahead.request):\n",
        "if False:\n",
        "A reader gets other records than it has requested, again and again.",
        nodes(_PASSED_ON + "test_range_that_is_read_ahead_is_dropped_by_another_request"),
    ),
    Planted(
        "ranges are read ahead beyond the mark",
        Package.SERVER,
        "next_count = min(bounds.max_records, mark + 1 - next_id)\n",
        "next_count = bounds.max_records + mark\n",
        "A storage reads more than the reader has requested.",
        nodes(_PASSED_ON + "test_next_range_of_a_sequential_reader_is_read_ahead"),
    ),
    Planted(
        "every partition holds a range ahead for a connection",
        Package.SERVER,
        "if not continues or next_id > mark or peer.has_range_ahead:\n",
        "if not continues or next_id > mark:\n",
        "A reader of many partitions fills the memory of the server.",
        nodes(_PASSED_ON + "test_connection_has_one_range_ahead_in_all_partitions"),
    ),
    Planted(
        "a request that waits for a range ahead is lost when the partition moves",
        Package.SERVER,
        "requests = [*self._reading, *self._ahead.stop()]\n",
        "requests = [*self._reading]\nself._ahead.stop()\n",
        "The reader is not informed that it waits at the wrong server.",
        nodes(_PASSED_ON + "test_close_refuses_the_request_that_waits_for_a_range_ahead"),
    ),
    Planted(
        "a range that is read ahead is held for ever",
        Package.SERVER,
        "self._ahead.tick()\n",
        "",
        "Readers that pause fill the memory of the server.",
        nodes(_PASSED_ON + "test_range_ahead_of_a_reader_that_pauses_is_dropped"),
    ),
    Planted(
        "reads ahead of a delayed session keep the reads of their connection",
        Package.SERVER,
        "requests = [*self._reading, *self._ahead.stop()]\n",
        "requests = [*self._reading]\n",
        "Reads of other partitions wait for a partition without a session.",
        nodes(_PASSED_ON + "test_range_ahead_is_forgotten_when_the_next_session_is_delayed"),
    ),
)
