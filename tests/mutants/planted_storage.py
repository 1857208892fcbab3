"""Bugs to plant into the storage, hunted by simulated seeds."""

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
        "roll-over without flushing the full segment",
        Package.STORAGE,
        "sealed = tail.seal()\n",
        "sealed = tail.sealed()\n",
        "Records that were written just before a roll-over are never flushed.",
    ),
    Planted(
        "new segment whose name is not durable",
        Package.STORAGE,
        "disk.flush_directory(identity.directory)\nreturn SegmentFiles(opened[1], opened[0])\n",
        "return SegmentFiles(opened[1], opened[0])\n",
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
        "self._trim()\nself.flush_data()\n",
        "self._trim()\n",
        "Truncated records are back after a loss of power.",
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
        "if not valid:\n    break\n",
        "",
        "A torn record counts as a whole one.",
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
    ),
    Planted(
        "the control file is believed without a flush",
        Package.STORAGE,
        "_make_durable(file)\n",
        "",
        "An update whose flush failed is believed, and a loss of power takes it back.",
        nodes(
            "unit/storage/test_storage_control.py::test_update_whose_flush_failed_is_made_durable_before_it_is_believed"
        ),
    ),
    Planted(
        "the control file is flushed and not written again",
        Package.STORAGE,
        "file.write_durably(0, file.read(0, file.size()))\n",
        "file.flush()\n",
        "An update whose flush failed is believed, and a loss of power takes it back.",
        nodes(
            "unit/storage/test_storage_control.py::test_update_whose_flush_failed_is_made_durable_before_it_is_believed"
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
    ),
    Planted(
        "marks cover records that are not flushed",
        Package.STORAGE,
        "self.log.flush_all()\nself._control.update(self.partition, info)\n",
        "self._control.update(self.partition, info)\n",
        "A session begins with a local mark up to which the index is not durable.",
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
)
