"""The admin lock: one process at a time changes the storage maps. Touches ZooKeeper.

The lock prevents changes from failing on each other's versions. It does not make them safe: a
process may lose its session, and with it the lock, between reading and writing. The compare-and-set
with the version that was read makes them safe
(test_change_under_a_lock_lost_with_the_session_conflicts). Source: spec/zookeeper.md section 3.
"""

from __future__ import annotations

import asyncio
import contextlib
from types import TracebackType

from waltz.metadata.retry import until_answered
from waltz.metadata.store import MetadataStore, NodeExists, NodeMissing, StoreClosed


class AdminLock:
    """A lock held inside ``async with``, as an ephemeral node at ``path``.

    Use one object per session: the node names its session only, so tasks that share a session
    exclude each other by the object's own lock.
    """

    def __init__(self, store: MetadataStore, path: str) -> None:
        self._store = store
        self._path = path
        self._within_session = asyncio.Lock()
        self._owner: int | None = None

    async def __aenter__(self) -> None:
        """Wait for the lock, without a limit."""
        await self._within_session.acquire()
        try:
            while not await until_answered(self._store, self._acquire_or_wait):
                continue
        except BaseException:
            self._within_session.release()
            raise

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        problem: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        """Release the lock; the end of the session has released it already."""
        try:
            with contextlib.suppress(NodeMissing, StoreClosed):
                await until_answered(self._store, self._release)
        finally:
            self._within_session.release()

    async def _acquire_or_wait(self) -> bool:
        """Try once; if another process holds the lock, wait for a change and return False."""
        with contextlib.suppress(NodeExists):
            await self._store.create(self._path, None, ephemeral=True)
        freed = asyncio.Event()
        node = await self._store.get(self._path, freed.set)
        if node is None:
            return False
        # Check the node's owner: the answer to the creation may have been lost
        # (test_admin_lock_whose_creation_was_not_answered_is_held).
        if node.owner == self._store.health.session_id:
            self._owner = node.owner
            return True
        await freed.wait()
        return False

    async def _release(self) -> None:
        node = await self._store.get(self._path)
        # If the session has expired, another process may hold the lock by now
        # (test_admin_lock_lost_with_the_session_is_not_taken_from_its_next_holder).
        if node is not None and node.owner == self._owner:
            await self._store.delete(self._path)
