"""Bugs to plant into the Spark source and sink, hunted by tests."""

from __future__ import annotations

from tests.mutants.planting import Package, Planted, nodes

SPARK_BUGS = (
    Planted(
        "an attempt replaces the recorded marks",
        Package.SPARK,
        "marks={**marks, **ledger.marks},\n",
        "marks={**ledger.marks, **marks},\n",
        "Rows that an earlier attempt appended are appended again.",
        nodes("unit/spark/test_spark_ledger.py::test_ledger_epoch_keeps_its_first_marks"),
    ),
    Planted(
        "an attempt of an older epoch appends",
        Package.SPARK,
        "if attempt.epoch < self.epoch:\n",
        "if attempt.epoch < self.epoch - 1:\n",
        "An abandoned task appends rows a second time.",
        nodes("unit/spark/test_spark_ledger.py::test_ledger_attempt_of_older_epoch_is_superseded"),
    ),
    Planted(
        "a new epoch keeps the attempts of the last one",
        Package.SPARK,
        "if attempt.epoch > self.epoch:\n",
        "if attempt.epoch > self.epoch + 1:\n",
        "Rows of the last epoch count as rows of the new one.",
        nodes("unit/spark/test_spark_ledger.py::test_ledger_new_epoch_drops_the_old_one"),
    ),
    Planted(
        "attempts of other runs do not compete",
        Package.SPARK,
        "(attempted.task == own.task or (has_row_ids and attempted.run != own.run))",
        "attempted.task == own.task",
        "A restarted driver appends rows again that it distributes over other tasks.",
        nodes(
            "unit/spark/test_spark_ledger.py::test_ledger_competing_attempts_are_those_of_the_same_task_or_run"
        ),
    ),
    Planted(
        "a run does not lock out the run before it",
        Package.SPARK,
        "older_runs = range(own.run)\n",
        "older_runs = range(own.run - 1)\n",
        "Both append the same rows.",
        nodes("unit/spark/test_spark_ledger.py::test_ledger_attempts_at_same_rows_conflict"),
    ),
    Planted(
        "equal rows without ids are one row",
        Package.SPARK,
        "self._found[row.fingerprint] -= 1\n",
        "pass\n",
        "A row that occurs twice is appended once.",
        nodes("unit/spark/test_spark_ledger.py::test_missing_rows_without_ids_are_counted"),
    ),
    Planted(
        "a row with an id is appended twice in a batch",
        Package.SPARK,
        "selected.add(row.fingerprint)\n",
        "pass\n",
        "The sink appends duplicates of a row.",
        nodes(
            "unit/spark/test_spark_ledger.py::test_missing_rows_with_equal_ids_are_appended_once"
        ),
    ),
    Planted(
        "a log that lost one transaction is not noticed",
        Package.SPARK,
        "if start > marks[partition] + 1 and not skip_missing:\n",
        "if start > marks[partition] + 2 and not skip_missing:\n",
        "A stream reads other transactions under ids that it has read.",
        nodes(
            "unit/spark/test_spark_offsets.py::test_offsets_beyond_the_log_are_refused_or_skipped"
        ),
    ),
    Planted(
        "the checkpoint of another stream is continued",
        Package.SPARK,
        "if tuple(sorted(positions)) != chosen:\n",
        "if not set(chosen) <= set(positions):\n",
        "Partitions are dropped from a stream without an error.",
        nodes("unit/spark/test_spark_offsets.py::test_offsets_of_another_query_are_refused"),
    ),
    Planted(
        "the checkpoint of another cluster is continued",
        Package.SPARK,
        "if its_key is not None and its_key != key:\n",
        "if False:\n",
        "Rows are skipped or read twice.",
        nodes("unit/spark/test_spark_offsets.py::test_offsets_of_another_cluster_are_refused"),
    ),
    Planted(
        "an offset changes its text without new transactions",
        Package.SPARK,
        "return start if ends == starts else offset_of(ends, key)\n",
        "return offset_of(ends, key)\n",
        "A query runs a micro-batch without rows.",
        nodes(
            "unit/spark/test_spark_offsets.py::test_next_offset_without_new_transactions_keeps_the_text"
        ),
    ),
    Planted(
        "each partition's share of a batch is rounded down",
        Package.SPARK,
        "taken = limit * (rows_before + rows) // total - limit * rows_before // total\n",
        "taken = limit * rows // total\n",
        "A small limit admits no rows, and the stream stops.",
        nodes("unit/spark/test_spark_offsets.py::test_admit_rows_uses_exactly_the_limit"),
    ),
    Planted(
        "a small limit of bytes admits no row",
        Package.SPARK,
        "return admit_rows(starts, ends, max(1, sum(backlog.values()) * limit // backlog_bytes))\n",
        "return admit_rows(starts, ends, sum(backlog.values()) * limit // backlog_bytes)\n",
        "The stream stops.",
        nodes(
            "unit/spark/test_spark_offsets.py::test_admit_bytes_converts_the_limit_by_mean_row_size"
        ),
    ),
    Planted(
        "a filter on the last id leaves it out",
        Package.SPARK,
        "first, end = max(first, ids.low), min(end, ids.high + 1)\n",
        "first, end = max(first, ids.low), min(end, ids.high)\n",
        "A query misses a row.",
        nodes(
            "unit/spark/test_spark_slices.py::test_slices_are_bounded_by_a_filter_of_transaction_ids"
        ),
    ),
    Planted(
        "slices overlap by one transaction",
        Package.SPARK,
        "yield Slice(partition, first + start, first + stop - 1)",
        "yield Slice(partition, first + start, first + stop)",
        "A query has rows twice.",
        nodes("unit/spark/test_spark_slices.py::test_slices_read_every_partition_to_its_mark"),
    ),
    Planted(
        "the end of a log is a missing position",
        Package.SPARK,
        "if position <= mark + 1:\n",
        "if position <= mark:\n",
        "A stream that has read everything cannot be continued.",
        nodes("unit/spark/test_spark_slices.py::test_slices_read_every_partition_to_its_mark"),
    ),
    Planted(
        "a filter with a strict bound includes the bound",
        Package.SPARK,
        "case GreaterThan():\n    return allowed.intersect(low=value + 1)\n",
        "case GreaterThan():\n    return allowed.intersect(low=value)\n",
        "A query has a row that its filter excludes.",
        nodes("unit/spark/test_spark_filters.py::test_filters_keep_the_rows_that_spark_keeps"),
    ),
    Planted(
        "two lists of allowed values are joined",
        Package.SPARK,
        "among &= self.among\n",
        "among |= self.among\n",
        "A query has rows that one of its filters excludes.",
        nodes("unit/spark/test_spark_filters.py::test_filters_keep_the_rows_that_spark_keeps"),
    ),
    Planted(
        "a filter that cannot be pushed is dropped",
        Package.SPARK,
        "if narrower is None:\n    not_expressed.append(pushed)\n",
        "if narrower is None:\n    continue\n",
        "Spark does not apply the filter.",
        nodes(
            "unit/spark/test_spark_filters.py::test_filters_that_are_not_supported_are_left_to_spark"
        ),
    ),
    Planted(
        "a malformed row is reported under another id",
        Package.SPARK,
        "yield from _parsed_runs(data.slice(half), parse, data_schema, first + half)\n",
        "yield from _parsed_runs(data.slice(half), parse, data_schema, first)\n",
        "Columns of the log and decoded columns are of different rows.",
        nodes("unit/spark/test_spark_payload.py::test_payload_json_decodes_to_columns"),
    ),
    Planted(
        "a malformed row is dropped in the mode permissive",
        Package.SPARK,
        "rows.append(run.first)\ntables.append(null_row)\n",
        "pass\n",
        "A query misses rows.",
        nodes("unit/spark/test_spark_payload.py::test_payload_text_is_null_for_invalid_utf8"),
    ),
    Planted(
        "checksums of shorter records are not corrected",
        Package.CLIENT,
        "crcs = crcs ^ _crcs_of_zeros(sizes) ^ _crcs_of_zeros(np.array([longest]))\n",
        "crcs = crcs ^ _crcs_of_zeros(sizes)\n",
        "Intact records of different lengths count as damaged.",
        nodes(
            "unit/client/test_client_many_checksums.py::test_checksums_with_one_wrong_value_do_not_match"
        ),
    ),
    Planted(
        "an attempt joins a write that has ended",
        Package.SPARK,
        "if node is None and not may_create:\n    raise WriteIsOver(self._write_id)\n",
        "",
        "An abandoned task appends after the write.",
        nodes(
            "unit/spark/test_spark_ledger_store.py::test_attempt_of_a_batch_joins_only_while_the_write_runs"
        ),
    ),
    Planted(
        "the ledger is read before the log",
        Package.SPARK,
        "while end is None or missing.mark < end:\n    first = missing.mark + 1\n",
        "early = self._competing_attempts(await self._register_attempt({}))\n"
        "self._competing_attempts = lambda ledger: early\n"
        "while end is None or missing.mark < end:\n    first = missing.mark + 1\n",
        "Rows of an attempt that joins meanwhile are appended again.",
        nodes(
            "unit/spark/test_spark_attempt.py::test_rows_of_an_attempt_that_joins_during_the_search_are_found"
        ),
    ),
    Planted(
        "the task chooses the partition of rows with ids",
        Package.SPARK,
        "return crc32(row.fingerprint) if self.has_row_ids else task\n",
        "return task\n",
        "A row that another run gives to another task is appended again.",
        nodes(
            "unit/spark/test_spark_row_ids.py::test_row_of_another_task_in_the_next_run_is_appended_once"
        ),
    ),
    Planted(
        "batches of a task are not bounded in bytes",
        Package.SPARK,
        "if buffered and (size_with_row > _BATCH_BYTES or len(buffered) >= _BATCH_ROWS):\n",
        "if buffered and len(buffered) >= _BATCH_ROWS:\n",
        "Large rows fill the memory of an executor and are refused as one batch.",
        nodes("unit/spark/test_spark_attempt.py::test_batches_are_bounded_in_bytes"),
    ),
    Planted(
        "a planned batch ends beyond a restored log",
        Package.SPARK,
        "    ends = {\n"
        "        partition: min(position, present[partition])\n"
        "        for partition, position in ends.items()\n"
        "    }\n"
        "wanted = spans_between(starts, ends)\n",
        "wanted = spans_between(starts, ends)\n",
        "A query that may skip what is missing fails all the same.",
        nodes(
            "unit/spark/test_spark_stream_reader.py::test_repeated_batch_is_cut_at_the_end_of_a_log_that_became_shorter"
        ),
    ),
    Planted(
        "a trigger reads beyond its target",
        Package.SPARK,
        "partition: min(end, max(starts[partition], target[partition]))\n",
        "partition: end\n",
        "A query with availableNow does not end.",
        nodes(
            "unit/spark/test_spark_stream_reader.py::test_available_now_trigger_stops_at_the_log_end_at_its_start"
        ),
    ),
    Planted(
        "a trigger goes back to an old target",
        Package.SPARK,
        "partition: min(end, max(starts[partition], target[partition]))\n",
        "partition: min(end, target[partition])\n",
        "The next run of a query with availableNow reads transactions twice.",
        nodes(
            "unit/spark/test_spark_stream_reader.py::test_available_now_trigger_with_an_old_mark_does_not_go_back"
        ),
    ),
    Planted(
        "a failed connection is used again",
        Package.SPARK,
        "except WaltzError:\n    READER_CACHE.forget(self._location)\n    raise\n",
        "except WaltzError:\n    raise\n",
        "A query never recovers.",
        nodes("unit/spark/test_spark_stream_reader.py::test_failed_connection_is_not_used_again"),
    ),
    Planted(
        "a failed session is used again",
        Package.SPARK,
        "SESSION_CACHE.forget(location)\n",
        "pass\n",
        "A write never recovers.",
        nodes(
            "unit/spark/test_spark_writer.py::test_session_that_failed_is_not_used_by_the_next_task"
        ),
    ),
    Planted(
        "the search for rows of earlier attempts ends after one page",
        Package.SPARK,
        "missing.record_found(page.headers[-1].transaction_id, found_fingerprints)\n",
        "missing.record_found(page.high_water_mark, found_fingerprints)\n",
        "Rows that are further back in the log are appended again.",
        nodes(
            "unit/spark/test_spark_attempt.py::test_rows_of_an_attempt_beyond_the_first_page_of_headers_are_found"
        ),
    ),
    Planted(
        "a list is forgotten by the next filter of its column",
        Package.SPARK,
        "elif among is None:\n    among = self.among\n",
        "",
        "Rows that the query excludes are returned.",
        nodes("unit/spark/test_spark_filters.py::test_filters_keep_the_rows_that_spark_keeps"),
    ),
)
