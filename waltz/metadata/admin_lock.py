"""The admin lock: one at a time changes the storage maps. Effects: the store's.

Source: spec/zookeeper.md section 3. The lock orders the changes; what makes them safe is that each
is written with the version that was read.
"""

from __future__ import annotations

import asyncio
import contextlib
from types import TracebackType

from waltz.metadata.retry import until_answered
from waltz.metadata.store import MetadataStore, NodeExists, NodeMissing, StoreClosed


class AdminLock:
    """Held inside ``async with``, as an ephemeral node at ``path``.

    Use one object per session: tasks that share a session are told apart by it alone.
    """

    def __init__(self, store: MetadataStore, path: str) -> None:
        self._store = store
        self._path = path
        self._within_session = asyncio.Lock()
        self._owner: int | None = None

    async def __aenter__(self) -> None:
        """Wait for the lock, however long."""
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
        """Give the lock back; that the session has ended is as good."""
        try:
            with contextlib.suppress(NodeMissing, StoreClosed):
                await until_answered(self._store, self._release)
        finally:
            self._within_session.release()

    async def _acquire_or_wait(self) -> bool:
        """Try once. When somebody else has it, wait until that may have changed; return False."""
        with contextlib.suppress(NodeExists):
            await self._store.create(self._path, None, ephemeral=True)
        freed = asyncio.Event()
        node = await self._store.get(self._path, freed.set)
        if node is None:
            return False
        # The owner tells, whether the creation's answer arrived or was lost.
        if node.owner == self._store.health.session_id:
            self._owner = node.owner
            return True
        await freed.wait()
        return False

    async def _release(self) -> None:
        node = await self._store.get(self._path)
        # After the session has ended, the lock may be somebody else's by now.
        if node is not None and node.owner == self._owner:
            await self._store.delete(self._path)
