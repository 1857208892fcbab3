"""Whether a client can be used: open, failed or closed. Watches the membership (ZooKeeper)."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable

from waltz.client.core.errors import ClientClosed, ClientFailed, Ending, PartitionUnknown
from waltz.metadata.membership import ClientMembership

log = logging.getLogger(__name__)


class MembershipState:
    """A client's standing. It fails when the servers cannot be followed any more.

    ``failed`` is then called with what makes the error of every call. To be made on an event loop.
    """

    def __init__(
        self,
        membership: ClientMembership,
        client_id: int,
        num_partitions: int,
        failed: Callable[[Ending], None],
    ) -> None:
        self._membership = membership
        self._client_id = client_id
        self._num_partitions = num_partitions
        self._failed = failed
        self._closed = False
        self._failure: str | None = None
        membership.start()
        self._watch = asyncio.get_running_loop().create_task(self._watch_membership())

    def close(self) -> bool:
        """Let no more be called, and return whether this is the first time."""
        first, self._closed = not self._closed, True
        return first

    async def end(self) -> None:
        """Watch no more."""
        self._watch.cancel()
        await self._membership.stop()

    def check(self) -> None:
        """Raises ClientClosed, ClientFailed."""
        if self._closed:
            raise ClientClosed
        if self._failure is not None:
            raise ClientFailed(self._failure)

    def check_partition(self, partition: int) -> None:
        """Raises what `check` does, and PartitionUnknown."""
        self.check()
        if not 0 <= partition < self._num_partitions:
            raise PartitionUnknown(partition, self._num_partitions)

    async def _watch_membership(self) -> None:
        try:
            await self._membership.finished()
        except Exception as error:
            log.exception("client %d loses track of the servers", self._client_id)
            self._fail(f"{type(error).__name__}: {error}")
        else:
            self._fail("its connection to ZooKeeper was closed")

    def _fail(self, reason: str) -> None:
        self._failure = reason
        self._failed(lambda: ClientFailed(reason))
