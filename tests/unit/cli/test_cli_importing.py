"""Imports append every row once and in order, whatever the outcomes of their requests are."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from typing import Any, cast

import pytest

from waltz.cli.log.archive import Row
from waltz.cli.log.importing import Importer
from waltz.cli.running import Failed
from waltz.client import AppendUncertain, Client, Draft, LockFailed, ServerTooOld, Transaction
from waltz.client.core.batches import Absent, Appended, BatchOutcome, Refused
from waltz.protocol import ReqId

ME, ANOTHER = 5, 9
MIB = 1 << 20


class ScriptedLog:
    """A log, in place of `Client`, that handles each request by the next step of a script.

    A number: so many appends of the batch are in the log, the others never will be. ``"foreign"``
    and ``"ours"``: the request fails, because another producer, or an earlier run of this import,
    has just appended a transaction with the lock of the import. ``"old"``: the server is too old
    for batches. After the end of the script all appends succeed. ``marks`` are the marks of the
    requests, and ``batch_bytes`` the bytes of data that each has.
    """

    def __init__(self, *script: int | str) -> None:
        self.script = list(script)
        self.log: list[tuple[int, bytes]] = []
        self.marks: list[int | None] = []
        self.batch_bytes: list[int] = []

    @property
    def bulk(self) -> ScriptedBulk:
        return ScriptedBulk(self)

    def take(self, data: Sequence[bytes], mark: int | None) -> list[BatchOutcome]:
        self.marks.append(mark)
        self.batch_bytes.append(sum(map(len, data)))
        match self.script.pop(0) if self.script else len(data):
            case "foreign":
                self.log.append((ANOTHER, b"foreign"))
                return [Refused(len(self.log) - 1)] * len(data)
            case "ours":
                self.log.append((ME, data[0]))
                return [Refused(len(self.log) - 1)] * len(data)
            case count:
                assert isinstance(count, int)
                first = len(self.log)
                self.log += ((ME, each) for each in data[:count])
                appended = [Appended(first + n) for n in range(count)]
                return [*appended, *(Absent() for _ in data[count:])]

    async def append(self, partition: int, data: bytes, **options: Any) -> int:
        (outcome,) = self.take([data], options["mark"])
        if isinstance(outcome, Appended):
            return outcome.transaction_id
        raise LockFailed(partition, 0)

    async def high_water_mark(self, partition: int) -> int:
        return len(self.log) - 1

    def stream(self, partition: int, *, after: int, until: int, data: bool) -> ScriptedStream:
        return ScriptedStream(
            [
                Transaction(partition, number, ReqId(self.log[number][0], 1, 0, 1), 0, b"")
                for number in range(after + 1, until + 1)
            ]
        )


class ScriptedBulk:
    def __init__(self, log: ScriptedLog) -> None:
        self._log = log

    async def append(
        self, partition: int, drafts: Sequence[Draft[Any]], *, mark: int | None
    ) -> list[BatchOutcome]:
        if self._log.script and self._log.script[0] == "old":
            raise ServerTooOld(partition, 4, "batches")
        assert all(draft.write_locks for draft in drafts)
        return self._log.take([draft.data for draft in drafts], mark)


class ScriptedStream:
    def __init__(self, transactions: list[Transaction]) -> None:
        self._transactions = transactions

    async def batches(self) -> AsyncIterator[list[Transaction]]:
        yield self._transactions


async def imported(log: ScriptedLog, count: int = 5) -> int:
    rows = (Row(0, None, 0, b"%d" % n) for n in range(count))
    advanced: list[int] = []
    await Importer(cast(Client, log), 0, [ME], -1).append(rows, advanced.append)
    assert [data for client, data in log.log if client == ME] == [b"%d" % n for n in range(count)]
    return sum(advanced)


async def test_rows_are_appended_in_one_batch() -> None:
    assert await imported(log := ScriptedLog()) == 5
    assert log.marks == [-1]


@pytest.mark.parametrize(
    ("row_bytes", "batch_bytes"),
    [
        ([1, 64 * MIB, 1], [1, 64 * MIB, 1]),
        ([MIB // 2] * 5, [MIB, MIB, MIB // 2]),
        ([MIB, 0, 1], [MIB, 1]),
        ([2] * 1001, [2000, 2]),
    ],
)
async def test_batches_end_before_the_row_that_would_exceed_their_bounds(
    row_bytes: list[int], batch_bytes: list[int]
) -> None:
    """A server refuses a batch of more than 64 MiB, which is also the bound of one row."""
    log = ScriptedLog()
    rows = (Row(0, None, 0, bytes(size)) for size in row_bytes)
    await Importer(cast(Client, log), 0, [ME], -1).append(rows, lambda _: None)
    assert log.batch_bytes == batch_bytes
    assert [len(data) for _, data in log.log] == row_bytes


async def test_lost_rows_are_appended_again() -> None:
    assert await imported(log := ScriptedLog(3, 0)) == 5
    assert log.marks == [-1, 2, 2]


async def test_lock_failure_of_other_producers_is_retried() -> None:
    assert await imported(log := ScriptedLog(2, "foreign")) == 5
    assert log.marks == [-1, 1, 2]


async def test_append_of_earlier_run_ends_import() -> None:
    with pytest.raises(
        Failed, match="an earlier run of this import has appended to partition 0 just now"
    ):
        await imported(ScriptedLog(2, "ours"))


@pytest.mark.parametrize("is_old", [False, True])
async def test_append_in_doubt_ends_import_with_the_advice_to_run_it_again(is_old: bool) -> None:
    """The advice for a single append would be to find the outcome of each row of the batch."""

    class DoubtfulLog(ScriptedLog):
        @property
        def bulk(self) -> ScriptedBulk:
            return ScriptedBulk(ScriptedLog("old")) if is_old else super().bulk

        def take(self, data: Sequence[bytes], mark: int | None) -> list[BatchOutcome]:
            outcomes = () if is_old else (None,) * len(data)
            raise AppendUncertain(0, ReqId(ME, 1, 0, 7), "no outcome within 30 s", outcomes)

    with pytest.raises(Failed, match=r"in doubt.*; run the import again: it continues") as raised:
        await imported(DoubtfulLog())
    assert "log find" not in str(raised.value)


async def test_append_of_earlier_run_after_the_search_ends_import() -> None:
    """The new mark is the end of the search: whatever comes later, the lock must still show."""

    class LateLog(ScriptedLog):
        def stream(self, *arguments: Any, **options: Any) -> ScriptedStream:
            found = super().stream(*arguments, **options)
            if len(self.marks) == 2:  # The search after the refusal.
                self.log.append((ME, b"late"))
            return found

        def take(self, data: Sequence[bytes], mark: int | None) -> list[BatchOutcome]:
            if len(self.log) > 3 and mark is not None and mark < 3:
                self.marks.append(mark)
                return [Refused(3)] * len(data)
            return super().take(data, mark)

    with pytest.raises(Failed, match="an earlier run of this import has appended"):
        await imported(LateLog(2, "foreign"))


async def test_old_server_gets_single_appends() -> None:
    class OldLog(ScriptedLog):
        @property
        def bulk(self) -> ScriptedBulk:
            return ScriptedBulk(ScriptedLog("old"))

    assert await imported(log := OldLog(1, "foreign")) == 5
    assert log.marks == [-1, 0, 1, 2, 3, 4]


async def test_only_rows_of_own_clients_count_as_imported() -> None:
    log = ScriptedLog()
    log.log = [(ME, b""), (ANOTHER, b""), (ME, b""), (ME, b"")]
    importer = Importer(cast(Client, log), 0, [ME], 3)
    assert [await importer.count_imported(-1, 3), await importer.count_imported(0, 2)] == [3, 1]
    assert await importer.count_imported(3, 3) == 0
