"""Bugs to plant into the write-ahead log of the storage, hunted by its unit tests."""

from __future__ import annotations

from tests.mutants.planting import Package, Planted, nodes

_ENGINE = "unit/storage/test_storage_wal_engine.py::"
_LARGE = "unit/storage/test_storage_wal_large_records.py::"
_READS = "unit/storage/test_storage_wal_reads.py::"
_FULL = "unit/storage/test_storage_wal_full_disk.py::"
_DIRECTORY = "unit/storage/test_storage_wal_directory.py::"
_HAZARDS = "unit/storage/test_storage_wal_hazards.py::"
_FLATTENING = "unit/storage/test_storage_flattening.py::"
_LOST_ROWS = "unit/storage/test_storage_wal_lost_rows.py::"
_REPLAY = "unit/storage/test_storage_wal_replay.py::"

WAL_BUGS = (
    Planted(
        "append answered before its transaction is flushed",
        Package.STORAGE,
        "header, written = self._header, self._written\nflush_wal(self._file)\n",
        "header, written = self._header, self._written\n",
        "A loss of power removes an acknowledged append.",
        nodes(f"{_LARGE}test_acknowledged_large_records_survive_every_crash"),
    ),
    Planted(
        "append answered before its direct data are flushed",
        Package.STORAGE,
        "return [self.writer.flush, *files.values()]\n",
        "return [self.writer.flush]\n",
        "A loss of power removes a large record whose append was acknowledged.",
        nodes(f"{_LARGE}test_acknowledged_large_records_survive_every_crash"),
    ),
    Planted(
        "checkpoint moved before the files are flushed",
        Package.STORAGE,
        "flushes.append(_flush_of(buffer.file))\n",
        "pass\n",
        "A loss of power removes records whose transactions were given up.",
        nodes(f"{_ENGINE}test_full_log_delays_appends_and_fails_none"),
    ),
    Planted(
        "position written before the changes that it covers are flushed",
        Package.STORAGE,
        "with self._unlocked():\n    for flush in flushes:\n        flush()\n"
        "flush_position = self.logged.write_position()\n",
        "flush_position = self.logged.write_position()\n"
        "with self._unlocked():\n    for flush in flushes:\n        flush()\n",
        "A snapshot of the data volume passes for one of the end of the checkpoint.",
        nodes(
            f"{_DIRECTORY}test_copy_of_the_data_volume_within_a_checkpoint_is_refused_or_has_all_records"
        ),
    ),
    Planted(
        "new catalogue that fits a log from before its replay",
        Package.STORAGE,
        "lost_rows = _renew_catalogue(disk, files.catalogue, replayed.writer.following)\n",
        "lost_rows = _renew_catalogue(disk, files.catalogue, replayed.writer.checkpoint)\n",
        "A restored log is replayed into other files than it means.",
        nodes(f"{_LOST_ROWS}test_log_from_before_its_replay_is_refused_beside_a_new_catalogue"),
    ),
    Planted(
        "space of the log used before the header is durable",
        Package.STORAGE,
        "write_wal_header(self._file, header)\nself._header = header\n",
        "write_wal_header(self._file, header)\nself._header = self._durable_header = header\n",
        "A crash leaves an older header, whose transactions are overwritten.",
        nodes(f"{_HAZARDS}test_space_of_a_checkpoint_is_used_only_when_its_header_is_durable"),
    ),
    Planted(
        "stale block accepted",
        Package.STORAGE,
        "belongs_to_transaction = magic == MAGIC and value == transaction_id.value\n",
        "belongs_to_transaction = magic == MAGIC\n",
        "A replay applies transactions of an earlier round of the ring.",
        nodes(f"{_REPLAY}test_log_that_wraps_hundreds_of_times_keeps_all_files"),
    ),
    Planted(
        "damage of the log taken for its end",
        Package.STORAGE,
        "raise WalDamaged(position, later)\n",
        "pass\n",
        "A damaged block drops acknowledged appends of all partitions in silence.",
        nodes(f"{_ENGINE}test_damage_in_the_log_refuses_the_directory_and_changes_no_segment"),
    ),
    Planted(
        "bytes moved again by a replay",
        Package.STORAGE,
        "if any(source.overlaps(changed_range(each)) for each in operations):\n",
        "if False:\n",
        "A second replay moves bytes that the first one has changed.",
        nodes(
            f"{_HAZARDS}test_replay_of_overlapping_move_does_not_move_twice",
            f"{_HAZARDS}test_move_whose_source_the_same_transaction_changes_is_replayed_without_"
            "the_change",
        ),
    ),
    Planted(
        "source of a logged move changed",
        Package.STORAGE,
        "return not any(\n    source.overlaps(changed) for _, source in self._sources "
        "for changed in changes\n)\n",
        "return True\n",
        "A replay moves newer bytes than the transaction did.",
        nodes(f"{_HAZARDS}test_write_to_the_source_of_a_logged_move_waits_for_a_checkpoint"),
    ),
    Planted(
        "direct data on bytes that the log changes",
        Package.STORAGE,
        "if changes is not None and (changes.row is not None or changes.end > data.start):\n",
        "if False:\n",
        "A replay applies a truncation again and removes a large record that came after it.",
        nodes(
            f"{_LARGE}test_large_record_after_a_truncation_goes_through_the_log_until_a_checkpoint",
            f"{_LARGE}test_large_record_of_a_new_segment_is_copied",
        ),
    ),
    Planted(
        "region used again before the checkpoint is durable",
        Package.STORAGE,
        "self.writer.advance(self._checkpoint)\n",
        "self.writer.advance(self._checkpoint)\n"
        "if self._removed:\n    self.files.catalogue.allow_reuse(self._removed.pop()[1])\n",
        "A replay applies operations of a removed file to a new one.",
        nodes(
            f"{_HAZARDS}test_region_of_a_removed_file_is_not_used_before_the_checkpoint_is_durable"
        ),
    ),
    Planted(
        "older catalogue used",
        Package.STORAGE,
        "if position < header.checkpoint:\n",
        "if False:\n",
        "A volume of another moment is used, and files that it does not name are lost.",
        nodes(f"{_REPLAY}test_older_copy_of_the_log_or_the_catalogue_is_refused"),
    ),
    Planted(
        "interrupted transaction left in the log",
        Package.STORAGE,
        "written = writer.write([])\nwriter.flush()\nwriter.complete(written)\n",
        "",
        "A dropped transaction becomes valid when the same data are written again.",
        nodes(f"{_REPLAY}test_transaction_without_its_direct_data_is_dropped_and_stays_dropped"),
    ),
    Planted(
        "last transaction replayed from the cache",
        Package.STORAGE,
        "_write_last_again(file, files, header, last)\n",
        "pass\n",
        "A loss of power removes records that the storage reported after a failed flush.",
        nodes(f"{_HAZARDS}test_transaction_whose_flush_failed_is_replayed_whole_or_not_at_all"),
    ),
    Planted(
        "damaged large record served",
        Package.STORAGE,
        "refuse(damaged)\n",
        "pass\n",
        "A replica votes with a record that the replay found damaged.",
        nodes(f"{_LARGE}test_durable_large_record_that_is_damaged_refuses_its_partition_only"),
    ),
    Planted(
        "damaged large record refused after the log is empty",
        Package.STORAGE,
        "refuse(damaged)\nheader = _write_header_of_empty_log(file, header, end.following)\n",
        "header = _write_header_of_empty_log(file, header, end.following)\nrefuse(damaged)\n",
        "After a crash in between, the damaged record is cut off as an interrupted write.",
        nodes(
            f"{_LARGE}test_partition_with_a_damaged_large_record_is_refused_if_the_replay_is_"
            "interrupted"
        ),
    ),
    Planted(
        "directory in use not marked",
        Package.STORAGE,
        "control.mark_logged()\n",
        "pass\n",
        "Waltz 0.13.2 uses segments whose last records are only in the log.",
        nodes(
            f"{_ENGINE}test_directory_after_crash_is_refused_by_the_engine_files",
            f"{_ENGINE}test_crashed_directory_has_a_key_that_waltz_0_13_2_refuses",
        ),
    ),
    Planted(
        "directory marked before its log exists",
        Package.STORAGE,
        "prepare_log(disk, home, key, options.wal_bytes)\ncontrol.mark_logged()\n",
        "control.mark_logged()\nprepare_log(disk, home, key, options.wal_bytes)\n",
        "A crash during the first start leaves a directory that no storage opens.",
        nodes(f"{_DIRECTORY}test_interrupted_first_start_is_repeated"),
    ),
    Planted(
        "directory plain before its segments are complete",
        Package.STORAGE,
        "self._wal.close()\nself._control.mark_plain()\n",
        "self._control.mark_plain()\nself._wal.close()\n",
        "A crash during a clean stop leaves segments that lack acknowledged records.",
        nodes(f"{_HAZARDS}test_crash_during_a_clean_stop_leaves_all_records"),
    ),
    Planted(
        "failed checkpoint not reported",
        Package.STORAGE,
        "fail(error)\nreturn\n",
        "return\n",
        "An idle storage goes on although the content of its files is unknown.",
        nodes(
            f"{_ENGINE}test_failed_checkpoint_on_the_thread_ends_the_process_without_another_append"
        ),
    ),
    Planted(
        "record queued without space in its file",
        Package.STORAGE,
        "self._reserve_space(offset + len(data))\n",
        "pass\n",
        "A full disk ends the process at the next checkpoint, and at each start.",
        nodes(f"{_ENGINE}test_write_that_a_full_disk_refuses_leaves_the_file_unchanged"),
    ),
    Planted(
        "new file without space in the catalogue",
        Package.STORAGE,
        "files.reserve_row(region)\n",
        "pass\n",
        "A full disk ends the process at the creation of a segment.",
        nodes(f"{_FULL}test_full_disk_at_a_row_of_the_catalogue_refuses_the_append"),
    ),
    Planted(
        "file read while the lock is held",
        Package.STORAGE,
        "    self._commits.logged.files.write_pending(state.region, offset, length)\n"
        'return self._read_handle().read(offset, length).ljust(length, b"\\0")\n',
        "    self._commits.logged.files.write_pending(state.region, offset, length)\n"
        '    return self._read_handle().read(offset, length).ljust(length, b"\\0")\n',
        "One slow read delays the commits of all partitions.",
        nodes(f"{_READS}test_slow_read_of_a_partition_delays_no_commit_of_another"),
    ),
    Planted(
        "read of bytes that are not in the file yet",
        Package.STORAGE,
        "self._commits.logged.files.write_pending(state.region, offset, length)\n",
        "pass\n",
        "A read finds zeros instead of an acknowledged record.",
        nodes(f"{_READS}test_read_finds_bytes_that_were_applied_and_are_not_in_the_file_yet"),
    ),
    Planted(
        "bytes of an interrupted direct write taken for durable",
        Package.STORAGE,
        "self._read_handle().flush()\n",
        "pass\n",
        "A loss of power damages a record again that a repair has reported as repaired.",
        nodes(
            "unit/storage/test_storage_repair.py::"
            "test_repair_flushes_a_direct_write_that_an_earlier_process_left_unflushed"
        ),
    ),
    Planted(
        "log of another storage replayed",
        Package.STORAGE,
        "if logged and (log_id is None or log_id != data_id):\n",
        "if False:\n",
        "A wrong volume for the log changes the segments of this storage.",
        nodes(f"{_DIRECTORY}test_directory_that_needs_its_log_is_refused_with_another_one"),
    ),
    Planted(
        "log of another storage overwritten",
        Package.STORAGE,
        "if log_id is not None and log_id != data_id:\n",
        "if False:\n",
        "A storage takes the directory of a log that another storage needs.",
        nodes(f"{_DIRECTORY}test_plain_directory_does_not_take_the_log_of_another_storage"),
    ),
    Planted(
        "segments read without their log",
        Package.STORAGE,
        "if key is not None and header.key != key and is_key_or_inverse(header.key, key):\n",
        "if False:\n",
        "waltz disk export prints a log without its last transactions.",
        nodes(
            "unit/cli/test_cli_disk_wal.py::"
            "test_verbs_that_read_records_refuse_segments_that_need_the_log"
        ),
    ),
    Planted(
        "log removed although it is not empty",
        Package.STORAGE,
        "check_log_is_empty(data)\nremove_log_files(data, data)\n",
        "remove_log_files(data, data)\n",
        "waltz disk flatten removes the log of another moment, which may have records.",
        nodes(
            f"{_FLATTENING}"
            "test_plain_directory_beside_a_log_of_another_moment_is_refused_and_unchanged"
        ),
    ),
    Planted(
        "log removed before the segments are complete",
        Package.STORAGE,
        "if _read_header(directories).key != key:\n",
        "if False:\n",
        "waltz disk flatten refuses a directory after a crash.",
        nodes(f"{_FLATTENING}test_flatten_gives_a_crashed_directory_the_engine_files"),
    ),
    Planted(
        "pair file of the segments removed before that of the log",
        Package.STORAGE,
        "(home, (WAL_FILE, LOG_PAIR_FILE)),\n(disk, (LOG_PAIR_FILE,)),\n",
        "(disk, (LOG_PAIR_FILE,)),\n(home, (WAL_FILE, LOG_PAIR_FILE)),\n",
        "After a crash of waltz disk flatten no storage can use the directory of the log.",
        nodes(
            f"{_FLATTENING}test_crash_of_the_command_loses_nothing_and_the_command_may_be_repeated"
        ),
    ),
    Planted(
        "damaged partition not reported",
        Package.STORAGE,
        "return FlattenResult(replayed.transactions, replayed.torn, refused)\n",
        "return FlattenResult(replayed.transactions, replayed.torn, ())\n",
        "waltz disk flatten succeeds although a storage will not serve a partition.",
        nodes(f"{_FLATTENING}test_damaged_partition_is_reported_and_the_others_are_flattened"),
    ),
    Planted(
        "a header that is only in the log gives a key",
        Package.STORAGE,
        "if key.int != 0:\n    return key\n",
        "return key\n",
        "Segments that need their log are read without it.",
        nodes(
            "unit/cli/test_cli_disk_wal.py::test_verb_takes_the_key_of_a_segment_whose_header_is_not_only_in_the_log"
        ),
    ),
)
