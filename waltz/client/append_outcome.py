"""Find the outcome of an append that raised AppendUncertain. Waits on the event loop.

An append is *in doubt* from when it is sent until its outcome is known.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from waltz.client.core.append_search import AppendSearch
from waltz.client.core.appends import PartitionAppends
from waltz.client.core.batches import Absent, Appended
from waltz.client.core.log_stream import LogStream
from waltz.protocol.records import ReqId

_POLL_SECONDS = 0.05
"""The interval at which `wait_until_settled` examines the append.

It must poll: the call of the append has ended, so no event reports the outcome."""


async def wait_until_settled(
    appends: PartitionAppends, req_id: ReqId, check: Callable[[], None]
) -> bool:
    """Wait until the append ``req_id`` of this client is not in doubt any more.

    ``appends`` are those of its partition. Returns false if the outcome can never be known, because
    the log has lost transactions (`Mount.log_mark_behind`). Raises the error that ``check`` raises
    for a client that was closed or has failed.
    """
    while appends.is_in_doubt(req_id):
        await asyncio.sleep(_POLL_SECONDS)
        check()
    return appends.mount.log_mark_behind is None


async def search_log(
    stream: LogStream[None], req_id: ReqId, *, is_settled: bool
) -> Appended | Absent | None:
    """Return what ``stream`` shows about the append ``req_id``.

    ``stream`` has the transactions of the append's partition, and an end. If ``is_settled``, the
    append is not in doubt any more: the stream has it, or the log never will. Returns None if the
    outcome is not known yet.
    """
    search = AppendSearch(req_id)
    async with stream:
        async for batch in stream.batches():
            if search.examine(batch):
                return search.result
    return Absent() if is_settled else None
