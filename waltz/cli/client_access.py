"""Open clients of the log for verbs, and limit each wait for servers by a time.

Touches the network and ZooKeeper.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Iterable

from waltz.cli.cluster_options import Target
from waltz.cli.running import Failed
from waltz.client import Client, LogStream, Transaction, connect
from waltz.client.opening import Opening
from waltz.protocol.notation import format_partitions

ANSWER_SECONDS = 30.0
"""The time limit of an append, and the default time limit of all other answers of servers."""


def open_client(where: Target, *, max_in_flight: int = 1000) -> Opening[Client]:
    """Open a client whose appends fail after `ANSWER_SECONDS`.

    At most ``max_in_flight`` appends of a partition are in flight at once; more appends wait.
    """
    return connect(
        where.zookeeper,
        root=where.root,
        tls=where.tls,
        access=where.access,
        zookeeper_access=where.zookeeper_access,
        append_timeout=ANSWER_SECONDS,
        max_in_flight=max_in_flight,
    )


async def high_water_marks(
    client: Client, partitions: Iterable[int] | None, seconds: float = ANSWER_SECONDS
) -> dict[int, int]:
    """Return the high-water marks of ``partitions`` (None: of all partitions), by partition.

    A high-water mark is the id of the last committed transaction, -1 for an empty log. Raises
    Failed if not all marks arrive within ``seconds``. Raises WaltzError for other failures, such as
    a partition that the cluster does not have.
    """
    wanted = range(client.num_partitions) if partitions is None else list(partitions)
    try:
        async with asyncio.timeout(seconds):
            marks = await asyncio.gather(*(client.high_water_mark(p) for p in wanted))
    except TimeoutError:
        raise Failed(
            f"no server reported the high-water marks of partitions {format_partitions(wanted)} "
            f"within {seconds:g} s; find the cause with: waltz doctor"
        ) from None
    return dict(zip(wanted, marks, strict=True))


async def batches_within(
    stream: LogStream, seconds: float | None
) -> AsyncGenerator[list[Transaction], None]:
    """Yield the batches of ``stream``.

    Raises Failed if a batch takes longer than ``seconds`` (None: no limit).
    """
    batches = stream.batches()
    while True:
        try:
            async with asyncio.timeout(seconds):
                batch = await anext(batches, None)
        except TimeoutError:
            raise Failed(
                f"no transaction arrived for {seconds:g} s, although more are expected; wait "
                "longer with --timeout, or find the cause with: waltz doctor"
            ) from None
        if batch is None:  # The stream has ended.
            return
        yield batch
