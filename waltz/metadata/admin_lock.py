"""The admin lock: one process at a time changes the storage maps or access rules.

Touches ZooKeeper.

With the lock, two processes that make changes at the same time do not get version conflicts. But
the lock alone does not make a change safe: a process may lose its session, and with the session the
lock, between reading and writing. What makes a change safe is the compare-and-set with the version
that was read (test_change_under_a_lock_lost_with_the_session_conflicts). Source: spec/zookeeper.md
section 3.
"""

from __future__ import annotations

import asyncio
import contextlib
from types import TracebackType

from waltz.metadata.retry import until_answered
from waltz.metadata.store import (
    MetadataStore,
    NodeExists,
    NodeMissing,
    StoreClosed,
    StoreError,
)

_ABANDON_SECONDS = 1.0
"""How long a failed or cancelled task waits for ZooKeeper: for the deletion of the node, if the
task did not get the lock, or for the release of the lock."""


class AdminLock:
    """A lock that is held inside ``async with``: an ephemeral node at ``path``.

    The node shows only which session holds the lock, not which task. So a second lock, inside this
    object, excludes the tasks of one session from each other. For that, tasks that may take the
    lock through one store at the same time must share one `AdminLock`. The object stays in use when
    a new session replaces an expired one.
    """

    def __init__(self, store: MetadataStore, path: str) -> None:
        self._store = store
        self._path = path
        self._task_lock = asyncio.Lock()
        self._releasing: set[asyncio.Task[None]] = set()
        """The tasks that release the lock. The event loop has only weak references to tasks."""
        self._owner: int | None = None
        """The id of the session that created the node when this object last took the lock.

        `_release` deletes the node only if this session owns it."""

    async def __aenter__(self) -> None:
        """Wait for the lock, without a time limit."""
        await self._task_lock.acquire()
        try:
            while not await until_answered(self._store, self._acquire_or_wait):
                continue
        except BaseException:
            try:
                await self._abandon()
            finally:
                self._task_lock.release()
            raise

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        problem: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        """Release the lock. If the session has ended, its end has already released the lock."""
        # The release has a task of its own, which does not end when the caller is cancelled.
        # Otherwise the node could exclude all other processes until the session ends
        # (test_admin_lock_whose_release_is_cancelled_is_free_when_zookeeper_answers).
        releasing = asyncio.create_task(self._release_when_answered())
        self._releasing.add(releasing)
        releasing.add_done_callback(self._releasing.discard)
        if kind is None:
            await asyncio.shield(releasing)
        else:  # A cancelled task must end soon, also while ZooKeeper does not answer.
            await asyncio.wait([releasing], timeout=_ABANDON_SECONDS)

    async def _release_when_answered(self) -> None:
        try:
            with contextlib.suppress(NodeMissing, StoreClosed):
                await until_answered(self._store, self._release)
        finally:
            self._task_lock.release()

    async def _acquire_or_wait(self) -> bool:
        """Try once to take the lock; return whether this session holds the lock now.

        If another process holds the lock, wait until the node changes before returning.
        """
        with contextlib.suppress(NodeExists):
            await self._store.create(self._path, None, ephemeral=True)
        changed = asyncio.Event()
        node = await self._store.get(self._path, changed.set)
        if node is None:  # Another process has just released the lock.
            return False
        # Decide by the node's owner, not by the result of the creation. If the answer to an earlier
        # creation was lost, this creation fails with NodeExists, although this session owns the
        # node (test_admin_lock_whose_creation_was_not_answered_is_held).
        if node.owner == self._store.health.session_id:
            self._owner = node.owner
            return True
        await changed.wait()
        return False

    async def _abandon(self) -> None:
        """Delete the node if this session has created it without taking the lock.

        That happens if a task is cancelled, for example by a time limit, after it has sent the
        request to create the node. If this node stayed, it would exclude all other processes until
        the session ends (test_admin_lock_is_free_after_a_cancelled_creation). If ZooKeeper does not
        answer within `_ABANDON_SECONDS`, the node may stay: a cancelled task must end soon.
        The node cannot be that of another task of this session: this task has the task lock.
        """
        with contextlib.suppress(StoreError, TimeoutError):
            async with asyncio.timeout(_ABANDON_SECONDS):
                node = await self._store.get(self._path)
                if node is not None and node.owner == self._store.health.session_id:
                    await self._store.delete(self._path)

    async def _release(self) -> None:
        node = await self._store.get(self._path)
        # If the session has expired, another process may hold the lock now. Deleting its node
        # would release that process's lock
        # (test_admin_lock_lost_with_the_session_is_not_taken_from_its_next_holder).
        if node is not None and node.owner == self._owner:
            await self._store.delete(self._path)
