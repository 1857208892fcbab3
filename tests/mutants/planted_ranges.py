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
        "last_id - read.first_id + 1)",
        "last_id - read.first_id + 100)",
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
        "for read in (*due, *self._waiting, *self._reading):\n",
        "for read in (*due, *self._reading):\n",
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
        "over = [read for read in self._waiting if read.ticks <= 0]\n",
        "over = [read for read in self._waiting if read.ticks == 1_000_000]\n",
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
            "unit/server/test_server_recent_records.py::test_batch_that_does_not_follow_replaces_all_others"
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
        "if version >= BOUNDED_LISTS_SINCE or not",
        "if version >= 0 or not",
        "A storage of the older version gets a message of the newer one.",
    ),
    Planted(
        "headers of a range with ids of another",
        Package.SERVER,
        "*range(transaction_id, transaction_id + _ID_BYTES),\n",
        "*range(transaction_id - _ID_BYTES, transaction_id),\n",
        "Headers from memory have other transaction ids.",
    ),
)
