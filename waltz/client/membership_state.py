"""Record whether a client is open, failed or closed. Follows the servers in ZooKeeper."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable

from waltz.client.core.arguments import check_partition
from waltz.client.core.errors import ClientClosed, ClientFailed, ErrorFactory, PartitionUnknown
from waltz.metadata.membership import ClientMembership

log = logging.getLogger(__name__)


class MembershipState:
    """Whether a client is open, failed or closed.

    A client fails when it can no longer follow the membership of its cluster in ZooKeeper: which
    server owns which partition. Then ``on_failure`` is called once, with an `ErrorFactory` that
    returns ClientFailed. The object must be created while an event loop runs.
    """

    def __init__(
        self,
        membership: ClientMembership,
        client_id: int,
        num_partitions: int,
        on_failure: Callable[[ErrorFactory], None],
    ) -> None:
        self._membership = membership
        self._client_id = client_id
        self._num_partitions = num_partitions
        self._on_failure = on_failure
        self._closed = False
        self._failure: str | None = None
        """Why the client has failed; None if it has not."""
        membership.start()
        self._watch = asyncio.get_running_loop().create_task(self._watch_membership())

    def close(self) -> bool:
        """Make `check` raise ClientClosed. Return whether this is the first call of `close`."""
        is_first = not self._closed
        self._closed = True
        return is_first

    async def end(self) -> None:
        """Stop following the servers."""
        # Cancel the watch first. Otherwise it would report the end of the membership as a failure.
        self._watch.cancel()
        await self._membership.stop()

    def check(self, partition: int | None = None) -> None:
        """Raise ClientClosed or ClientFailed if the client has ended.

        Raise PartitionUnknown if the cluster has no ``partition``, TypeError if it is not a number.
        """
        if self._closed:
            raise ClientClosed
        if self._failure is not None:
            raise ClientFailed(self._failure)
        if partition is None:
            return
        check_partition(partition)
        if not 0 <= partition < self._num_partitions:
            raise PartitionUnknown(partition, self._num_partitions)

    async def _watch_membership(self) -> None:
        """Wait until the servers can no longer be followed; then make the client fail."""
        try:
            await self._membership.finished()
        except Exception as error:
            log.exception(
                "client %d: failed to follow the servers in ZooKeeper; all calls fail from now on",
                self._client_id,
            )
            self._fail(f"{type(error).__name__}: {error}")
        else:
            self._fail("its connection to ZooKeeper was closed")

    def _fail(self, reason: str) -> None:
        """Make `check` raise ClientFailed, and call ``on_failure``."""
        self._failure = reason
        self._on_failure(lambda: ClientFailed(reason))
