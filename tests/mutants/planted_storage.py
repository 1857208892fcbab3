"""Bugs to plant into the storage, hunted by simulated seeds and by tests."""

from __future__ import annotations

from tests.mutants.planting import Package, Planted, nodes

STORAGE_BUGS = (
    Planted(
        "append answered before it is flushed",
        Package.STORAGE,
        "flushes.append(tail.flush_data)\n",
        "pass\n",
        "A loss of power removes an acknowledged append.",
    ),
    Planted(
        "records refused by a full disk are not removed durably",
        Package.STORAGE,
        "self._trim()\nself.flush_data()\nraise\n",
        "self._trim()\nraise\n",
        "Records that the storage has refused are back after a loss of power.",
        nodes(
            "unit/storage/test_storage_log.py"
            "::test_records_refused_by_a_full_disk_are_not_back_after_a_loss_of_power"
        ),
    ),
    Planted(
        "roll-over without flushing the full segment",
        Package.STORAGE,
        "sealed = tail.seal()\n",
        "sealed = tail.bounds()\n",
        "Records that were written just before a roll-over are never flushed.",
    ),
    Planted(
        "new segment whose name is not durable",
        Package.STORAGE,
        "disk.flush_directory(identity.directory)\nindex, data = opened\n",
        "index, data = opened\n",
        "A loss of power removes a segment with its flushed records.",
    ),
    Planted(
        "truncation leaves the bytes there",
        Package.STORAGE,
        "self.next_id, self.end = next_id, end\nself._trim()\n",
        "self.next_id, self.end = next_id, end\n",
        "Truncated records are back after a restart.",
    ),
    Planted(
        "truncation is not flushed",
        Package.STORAGE,
        "self.next_id, self.end = next_id, end\nself._trim()\nself.flush_data()\n",
        "self.next_id, self.end = next_id, end\nself._trim()\n",
        "Truncated records are back after a loss of power.",
        nodes("unit/storage/test_storage_crash.py::test_answered_appends_survive_any_crash"),
    ),
    Planted(
        "truncation stops at the beginning of a segment",
        Package.STORAGE,
        "while segments.sealed and last_id + 1 < segments.tail.first_id:\n",
        "while segments.sealed and last_id + 1 < segments.tail.first_id and False:\n",
        "A truncation to an earlier segment leaves records in place.",
    ),
    Planted(
        "a record with a bad checksum is accepted",
        Package.STORAGE,
        "if not is_valid:\n    break\n",
        "",
        "A torn record counts as a whole one.",
        nodes(
            "unit/storage/test_storage_flushed_marks.py::test_torn_record_above_the_mark_is_cut_off"
        ),
    ),
    Planted(
        "a record at the end of the file is cut off",
        Package.STORAGE,
        "not 0 <= length <= size - offset - RECORD_OVERHEAD_BYTES",
        "not 0 <= length < size - offset - RECORD_OVERHEAD_BYTES",
        "A restart loses the last record of a file that ends with it.",
    ),
    Planted(
        "pages of a failed flush are trusted",
        Package.STORAGE,
        "_rewrite(files.data, plan.scan_offset, plan.end)\n",
        "pass\n",
        "After a failed flush and a restart, records that are only in memory count as durable.",
        nodes(
            "unit/storage/test_storage_log.py::test_log_reopened_after_failed_flush_has_only_durable_records"
        ),
    ),
    Planted(
        "the control file is used without a flush",
        Package.STORAGE,
        "_make_durable(file)\n",
        "",
        "An update whose flush failed is used, and a loss of power undoes the update.",
        nodes(
            "unit/storage/test_storage_control.py::test_update_whose_flush_failed_is_made_durable_before_its_use"
        ),
    ),
    Planted(
        "the control file is flushed and not written again",
        Package.STORAGE,
        "file.write_durably(0, file.read(0, file.size()))\n",
        "file.flush()\n",
        "An update whose flush failed is used, and a loss of power undoes the update.",
        nodes(
            "unit/storage/test_storage_control.py::test_update_whose_flush_failed_is_made_durable_before_its_use"
        ),
    ),
    Planted(
        "control file not flushed",
        Package.STORAGE,
        "self._file.write_durably(struct_offset(partition, entry.slot), entry.encode())\n",
        "self._file.write(struct_offset(partition, entry.slot), entry.encode())\n",
        "After a loss of power, a replica does not know that it took part in a session.",
    ),
    Planted(
        "control file overwritten in place",
        Package.STORAGE,
        "self.sequence + 1, 1 - self.slot)",
        "self.sequence + 1, self.slot)",
        "A torn update leaves a partition with old marks.",
        nodes(
            "unit/storage/test_storage_control.py::test_torn_update_leaves_the_former_or_the_new_info",
            "unit/storage/test_storage_control.py::test_current_struct_of_a_new_control_entry_is_the_second",
        ),
    ),
    Planted(
        "marks cover records that are not flushed",
        Package.STORAGE,
        "self.log.flush_all()\nself._control.update(self.partition, info)\n",
        "self._control.update(self.partition, info)\n",
        "A session begins with a local mark up to which the index is not durable.",
        nodes(
            "unit/storage/test_storage_partition.py::test_session_that_has_begun_has_a_durable_index_up_to_its_local_mark"
        ),
    ),
    Planted(
        "a full disk does not refuse appends",
        Package.STORAGE,
        "if refused is None\n",
        "if refused is None or refused is not None\n",
        "An append that found no space is acknowledged.",
    ),
    Planted(
        "the last record of a batch is dropped",
        Package.STORAGE,
        "remaining, position = batch.count, 0\n",
        "remaining, position = max(1, batch.count - 1), 0\n",
        "A batch is acknowledged without its last record.",
    ),
    Planted(
        "an impossible session raises the fence",
        Package.STORAGE,
        "if raises_fence(request) and is_possible(request.session_id, self.info):\n"
        "    self._highest_arrived = max(self._highest_arrived, request.session_id)\n",
        "if raises_fence(request):\n"
        "    self._highest_arrived = max(self._highest_arrived, request.session_id)\n",
        "One request with the highest session id blocks a replica until its storage restarts.",
        nodes(
            "unit/storage/test_storage_partition.py::test_request_with_an_impossible_session_blocks_no_server"
        ),
    ),
    Planted(
        "an impossible session is accepted",
        Package.STORAGE,
        "if not is_possible(session_id, info):\n",
        "if session_id < 0:\n",
        "One request with the highest session id blocks a replica forever.",
        nodes(
            "unit/storage/test_storage_partition.py::test_request_with_an_impossible_session_blocks_no_server"
        ),
    ),
    Planted(
        "flushed mark written before the flush",
        Package.STORAGE,
        "staged.written = chunk\n",
        "staged.written = chunk\n"
        "self._mark.raise_to(FlushedEnd(chunk.next_id - 1, CHECKSUM.unpack(chunk.parts[-1])[0]))\n",
        "A loss of power makes a replica refuse a partition that has lost nothing.",
        nodes("unit/storage/test_storage_crash.py::test_answered_appends_survive_any_crash"),
    ),
    Planted(
        "flushed mark not lowered before a truncation",
        Package.STORAGE,
        "self._mark.lower_to(new_end)\n",
        "",
        "After a truncation and a restart, a replica refuses a partition that has lost nothing.",
        nodes(
            "unit/storage/test_storage_flushed_marks.py::test_truncation_lowers_the_mark_before_it_cuts"
        ),
    ),
    Planted(
        "start replaces the mark of a damaged last record",
        Package.STORAGE,
        "if self.max_id == flushed.last_id and self.max_id in transaction_ids:\n",
        "if False:\n",
        "The record cannot be repaired, because the mark has its wrong checksum.",
        nodes(
            "unit/storage/test_storage_damaged_truncation.py"
            "::test_start_keeps_the_mark_of_a_damaged_last_record"
        ),
    ),
    Planted(
        "truncation keeps a damaged record without a certain end",
        Package.STORAGE,
        "if not _has_certain_end(segments, segment, last_id):\n",
        "if False:\n",
        "After a restart, the storage refuses the partition that it served before the truncation.",
        nodes(
            "unit/storage/test_storage_damaged_truncation.py"
            "::test_truncation_to_a_record_without_a_certain_end_is_refused"
        ),
    ),
    Planted(
        "missing partition directory is created again",
        Package.STORAGE,
        "_check_files(disk, identity, known)\n",
        "",
        "A replica that has lost its log votes as if it had never held a record.",
        nodes(
            "unit/storage/test_storage_flushed_marks.py::test_lost_partition_directory_is_damage"
        ),
    ),
    Planted(
        "record below the flushed mark taken for an interrupted write",
        Package.STORAGE,
        "must_reach = known.must_reach if next_first_id is None else next_first_id - 1\n",
        "must_reach = known.local_low_water_mark if next_first_id is None else next_first_id - 1\n",
        "A damaged record among the newest ones shortens the log of a replica that votes.",
        nodes(
            "unit/storage/test_storage_flushed_marks.py::test_damaged_record_up_to_the_mark_is_damage"
        ),
    ),
    Planted(
        "log ends at any place that a damaged last record names",
        Package.STORAGE,
        "return checksum == self._last_checksum\n",
        "return True\n",
        "A damaged length, or an older copy of the log, decides where the next record is written.",
        nodes(
            "unit/storage/test_storage_damaged_start.py::test_flipped_byte_of_a_record_damages_only_that_record"
        ),
    ),
    Planted(
        "place behind a damaged record believed without a record there",
        Package.STORAGE,
        "return long_record_is_valid(self._data, position, end - position)\n",
        "return True\n",
        "A wrong length in a damaged record moves all records after it.",
        nodes(
            "unit/storage/test_storage_damaged_start.py::test_damaged_record_at_the_local_low_water_mark_before_an_invalid_one_is_refused"
        ),
    ),
    Planted(
        "sealed segment ends where its damaged last record says",
        Package.STORAGE,
        "return end == self._size\n",
        "return True\n",
        "A segment that was cut off is taken for a whole one.",
        nodes(
            "unit/storage/test_storage_damaged_start.py::test_flipped_byte_of_the_last_record_of_a_sealed_segment_damages_only_that_record"
        ),
    ),
    Planted(
        "damaged records of a start are not reported",
        Package.STORAGE,
        "damaged = [transaction_id for plan in plans for transaction_id in plan.damaged]\n",
        "damaged = list[int]()\n",
        "Nothing repairs the records until the scrubber has read the whole log.",
        nodes(
            "unit/storage/test_storage_damaged_start.py::test_damaged_records_after_each_other_and_apart_are_all_found"
        ),
    ),
    Planted(
        "flushed mark overwritten in place",
        Package.STORAGE,
        "return newest if no_flush_since_write else self._unneeded_slot(state)\n",
        "return newest\n",
        "A torn write leaves a partition without a mark.",
        nodes(
            "unit/storage/test_storage_flushed_marks.py::test_flushed_mark_after_power_loss_is_never_lost_or_ahead"
        ),
    ),
    Planted(
        "volume of an earlier start is used",
        Package.STORAGE,
        "if data.generation not in (meta.generation, meta.generation + 1):\n",
        "if False:\n",
        "A restored volume takes part without the records that were written after the copy.",
        nodes(
            "unit/storage/test_storage_directory_pair.py::test_volume_restored_from_an_earlier_start_is_refused"
        ),
    ),
    Planted(
        "log cut below its mark",
        Package.STORAGE,
        "if last_id < mark and (version >= storage.TRUNCATE_BELOW_MARK_SINCE or empties_intact):\n",
        "if False:\n",
        "A server with lost metadata removes all transactions.",
        nodes(
            "unit/storage/test_storage_truncation.py::test_truncation_below_low_water_mark_depends_on_version"
        ),
    ),
    Planted(
        "log cut below another mark than the server names",
        Package.STORAGE,
        "if request.low_water_mark != mark:\n",
        "if False:\n",
        "A server cuts a log whose mark it does not know.",
        nodes(
            "unit/storage/test_storage_truncation.py::test_truncation_that_names_a_wrong_mark_is_refused"
        ),
    ),
    Planted(
        "a truncation keeps the generation of the volumes",
        Package.STORAGE,
        "self._control.advance_generation()\n",
        "pass\n",
        "A data volume restored from before a truncation brings removed records back.",
        nodes(
            "unit/storage/test_storage_single_faults.py::"
            "test_data_volume_from_before_a_truncation_is_refused"
        ),
    ),
    Planted(
        "names that a killed process left not flushed",
        Package.STORAGE,
        "disk.flush_directory(identity.directory)\nsealed = []\n",
        "sealed = []\n",
        "A loss of power removes a segment whose records were answered.",
        nodes(
            "unit/storage/test_storage_durable_names.py::test_records_of_a_process_after_a_killed_one_survive_a_loss_of_power"
        ),
    ),
    Planted(
        "generation that a killed process left not flushed",
        Package.STORAGE,
        "_make_durable(pair)\n",
        "pass\n",
        "A loss of power leaves two directories that count as of different moments.",
        nodes(
            "unit/storage/test_storage_durable_names.py::test_start_after_a_killed_start_survives_a_loss_of_power_at_any_moment"
        ),
    ),
    Planted(
        "damage found at a start not forgotten after a truncation",
        Package.STORAGE,
        "self._on_truncation(answer.partition, answer.transaction_id)\n",
        "pass\n",
        "Without a scrubber, records that were replaced are reported as damaged for ever.",
        nodes(
            "unit/storage/test_storage_start_findings.py::test_damage_is_forgotten_when_a_server_truncates_the_log_before_it"
        ),
    ),
    Planted(
        "the last index entry of a segment is not checked",
        Package.STORAGE,
        "if number < len(entries) and entries[number]",
        "if number + 1 < len(entries) and entries[number]",
        "`waltz disk verify` calls a damaged index sound.",
        nodes(
            "unit/storage/test_storage_segment_check.py::test_wrong_index_entry_of_a_whole_record_is_reported"
        ),
    ),
    Planted(
        "a checkpoint covers the record at it",
        Package.STORAGE,
        "(max(0, claimed_last - 1) // CHECKPOINT_INTERVAL)",
        "(max(0, claimed_last) // CHECKPOINT_INTERVAL)",
        "The rest of an interrupted write is taken for damage.",
        nodes(
            "unit/storage/test_storage_damaged_start.py::test_invalid_last_record_at_a_checkpoint_is_cut_off"
        ),
    ),
)
