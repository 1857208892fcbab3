"""Bugs to plant into the repair of damaged records, hunted by single tests."""

from __future__ import annotations

from tests.mutants.planting import Package, Planted, nodes

_LOG = "unit/storage/test_storage_repair.py::"
_ORDER = "unit/admin/test_operations_repair.py::"
_SELF = "unit/storage/test_storage_self_repair.py::"
_REFUSED = nodes(_LOG + "test_repair_that_the_log_does_not_confirm_is_refused")

REPAIR_BUGS = (
    Planted(
        "a repair is not flushed",
        Package.STORAGE,
        "    files.data.write(position, raw)\nfiles.data.flush()\n",
        "    files.data.write(position, raw)\n",
        "After a loss of power the record is damaged again, although the repair was reported.",
        nodes(_LOG + "test_repair_restores_every_changed_byte_of_a_data_file"),
    ),
    Planted(
        "a repair leaves a wrong index entry",
        Package.STORAGE,
        "files.index.write(repair.entry_at, repair.entries)\n",
        "pass\n",
        "The records at the wrong entry cannot be read from this replica.",
        nodes(_LOG + "test_repair_restores_every_changed_byte_of_an_index"),
    ),
    Planted(
        "a repair trusts the lengths of the peer's records",
        Package.STORAGE,
        "if end > segment.end or not _begins_at(segments, segment, data, next_id, end):\n",
        "if False:\n",
        "A repair overwrites the beginning of the next record.",
        _REFUSED,
    ),
    Planted(
        "a repair replaces undamaged records",
        Package.STORAGE,
        "_refuse_undamaged(segments, segment, data, first_id + number, offsets[number])\n",
        "pass\n",
        "A record of another log replaces a committed record.",
        _REFUSED,
    ),
    Planted(
        "a repair does not compare the last record with the one that was flushed",
        Package.STORAGE,
        "and _record_checksum(pieces[-1]) != end.checksum",
        "and False",
        "The next start refuses the partition: its last record is not the one that was flushed.",
        _REFUSED,
    ),
    Planted(
        "a repair replaces records above the local low-water mark",
        Package.STORAGE,
        "records.first_id() + records.count - 1 > mark",
        "False",
        "A record that this replica never had gets an id that the replica acknowledged.",
        nodes(_LOG + "test_repair_request_above_the_local_low_water_mark_is_refused"),
    ),
    Planted(
        "a repair begins to write a block that cannot be read",
        Package.STORAGE,
        "for repair in repairs:\n    _check_blocks(segments, repair)\n",
        "",
        "The write fails, and the storage ends.",
        nodes(_LOG + "test_repair_that_writes_only_a_part_of_an_unreadable_block_is_refused"),
    ),
    Planted(
        "a repair through the write-ahead log writes blocks that cannot be read",
        Package.STORAGE,
        "divided = segments.options.divided_writes\n",
        "divided = False\n",
        "The write of a part of a block fails, at each start again, and the storage ends.",
        nodes(_LOG + "test_repair_of_unreadable_blocks_through_the_write_ahead_log_is_refused"),
    ),
    Planted(
        "a repair trusts records that are not durable",
        Package.STORAGE,
        "files.data.flush()\nif repair.entries:\n",
        "if repair.damaged:\n    files.data.flush()\nif repair.entries:\n",
        "A repair that was interrupted before its flush is repeated: it reports success, and the "
        "record is damaged again after a loss of power.",
        nodes(_LOG + "test_repair_flushes_records_that_an_interrupted_repair_left_unflushed"),
    ),
    Planted(
        "repaired records stay in the findings",
        Package.STORAGE,
        "self._scrubber.findings.note_repair(partition, checked)\n",
        "pass\n",
        "The order repairs the same records again and again.",
        nodes(_LOG + "test_repair_request_repairs_records_and_removes_them_from_the_findings"),
    ),
    Planted(
        "a repair takes records from a replica that has them damaged, too",
        Package.ADMIN,
        "*(each.first_id - 1 for each in damaged if each.last_id >= first_id),\n",
        "",
        "The repair fails although a third replica has the records.",
        nodes(_ORDER + "test_repair_takes_no_record_from_a_replica_that_has_it_damaged_too"),
    ),
    Planted(
        "a repair takes records above the local low-water mark of their source",
        Package.ADMIN,
        "last_id,\nheld.local_low_water_mark,\n",
        "last_id,\nlast_id,\n",
        "A record that was never committed replaces a committed one.",
        nodes(_ORDER + "test_repair_needs_a_source_whose_mark_reaches_the_records"),
    ),
    Planted(
        "a replica outside the session is compared up to its local mark",
        Package.ADMIN,
        "is None else held.low_water_mark",
        "is None else held.local_low_water_mark",
        "Records that the replica received after its session began are not compared.",
        nodes(
            "unit/admin/test_operations_replica_comparison.py::test_replica_outside_the_session_is_compared_up_to_its_low_water_mark"
        ),
    ),
    Planted(
        "a storage repairs itself from a replica of an older session",
        Package.STORAGE,
        "return view.in_session(storage, held)\n",
        "return True\n",
        "The marks of a replica that was replaced may be wrong, and so may its records.",
        nodes(_SELF + "test_repair_uses_no_replica_outside_of_the_session"),
    ),
    Planted(
        "a storage plans to repair records above its own mark",
        Package.STORAGE,
        "remaining = IdRange(ids.first_id, min(ids.last_id, mark))\n",
        "remaining = ids\n",
        "The log refuses the whole range, also the part that could be repaired.",
        nodes(_SELF + "test_attempt_repairs_only_records_up_to_the_own_mark"),
    ),
    Planted(
        "a storage tries to repair itself only once",
        Package.STORAGE,
        "if self._findings.ranges:\n    await self._attempt()\n",
        "if self._findings.ranges and not failures:\n    await self._attempt()\n",
        "Damage stays if ZooKeeper or the peer did not answer at the first attempt.",
        nodes(_SELF + "test_damaged_record_is_repaired_from_the_peer_without_an_administrator"),
    ),
    Planted(
        "a storage that repairs itself asks a peer that has failed again and again",
        Package.STORAGE,
        "for storage in sorted(view.replicas - without)\n",
        "for storage in sorted(view.replicas)\n",
        "A record stays damaged although another peer has it.",
        nodes(
            _SELF + "test_repair_without_a_peer_that_has_failed_takes_the_records_from_another_one"
        ),
    ),
    Planted(
        "a record within a damaged range is a source",
        Package.ADMIN,
        "for each in damaged if each.last_id >= first_id)",
        "for each in damaged if each.first_id >= first_id)",
        "A repair reads from a replica that has the same record damaged, and fails.",
        nodes(
            "unit/admin/test_operations_repair.py::test_repair_takes_no_record_from_within_a_damaged_range_of_a_replica"
        ),
    ),
)
