"""Store ledgers of writes in ZooKeeper, below the cluster's root: ``spark/<write id>``.

`core.ledger` explains ledgers. Touches ZooKeeper.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from contextlib import suppress
from typing import TypeVar
from urllib.parse import quote

from waltz.client.deadlines import in_time
from waltz.metadata.retry import until_answered
from waltz.metadata.store import MetadataStore, NodeExists, NodeMissing, VersionConflict
from waltz.spark.core.ledger import Ledger, NewAttempt, WriteIsOver

T = TypeVar("T")


class LedgerStore:
    """Changes the ledger of one write: of a streaming query, or of one batch.

    The ledger of a query, and of a batch with a write id, is ``persistent``: `join` creates it if
    it does not exist, and nothing deletes it, because the write may be repeated. The ledger of any
    other batch exists from `create` to `delete`. If an attempt of such a batch finds no ledger, the
    batch has ended, and the attempt must not append any more
    (`test_attempt_of_a_finished_batch_is_refused`).
    """

    def __init__(
        self,
        store: MetadataStore,
        root: str,
        write_id: str,
        *,
        persistent: bool,
        timeout_seconds: float,
    ) -> None:
        """Methods raise ClusterUnreachable if ZooKeeper does not answer in ``timeout_seconds``."""
        self._store = store
        self._timeout_seconds = timeout_seconds
        self._parent = f"{root}/spark"
        self._path = f"{self._parent}/{quote(write_id, safe='')}"
        self._write_id = write_id
        self._persistent = persistent

    async def create(self) -> None:
        """Create an empty ledger. Do nothing if the write has a ledger already."""
        empty = Ledger(self._write_id, epoch=0)
        await self._change(lambda ledger: ledger or empty, may_create=True)

    async def delete(self) -> None:
        """Delete the ledger, because the write has ended. Do nothing if there is none."""

        async def delete() -> None:
            with suppress(NodeMissing):
                await self._store.delete(self._path)

        await self._await_answer(delete)

    async def join(self, attempt: NewAttempt, marks: Mapping[int, int]) -> Ledger:
        """Register an attempt that is about to append; see `Ledger.with_attempt`.

        Raises EpochIsOver, WriteIsOver, LedgerFull, LedgerMalformed.
        """

        def registered(ledger: Ledger | None) -> Ledger:
            return (ledger or Ledger(self._write_id, attempt.epoch)).with_attempt(attempt, marks)

        return await self._change(registered, may_create=self._persistent)

    async def _change(
        self, change: Callable[[Ledger | None], Ledger], *, may_create: bool
    ) -> Ledger:
        """Compare-and-set the ledger to ``change(ledger)`` and return it.

        ``change`` gets None if there is no ledger. It must be idempotent, because it is called
        again after a conflict and after a lost connection. Raises LedgerFull, LedgerMalformed, and
        WriteIsOver if there is no ledger and ``may_create`` is false.
        """

        async def compare_and_set() -> Ledger:
            while True:
                node = await self._store.get(self._path)
                if node is None and not may_create:
                    raise WriteIsOver(self._write_id)
                before = None if node is None else Ledger.decode(node.data or b"")
                ledger = change(before)
                if ledger == before:
                    return ledger
                if node is None:
                    with suppress(NodeExists):
                        await self._store.create(self._parent, None)
                try:
                    if node is None:
                        await self._store.create(self._path, ledger.encode())
                    else:
                        await self._store.set(self._path, ledger.encode(), node.version)
                except (NodeExists, NodeMissing, VersionConflict):
                    continue  # The ledger was changed meanwhile: try again with the new one.
                return ledger

        return await self._await_answer(compare_and_set)

    async def _await_answer(self, operation: Callable[[], Awaitable[T]]) -> T:
        """Repeat ``operation`` until ZooKeeper answers. Raises ClusterUnreachable."""
        no_answer = f"ZooKeeper did not answer about the ledger of the write {self._write_id}"
        return await in_time(
            until_answered(self._store, operation), self._timeout_seconds, no_answer
        )
