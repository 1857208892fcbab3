"""The options that several verbs of ``waltz bench`` share, and the confirmation before appends."""

from __future__ import annotations

from typing import Annotated

import typer

from waltz.cli.cluster_options import Target
from waltz.cli.options import confirm
from waltz.protocol.notation import format_partitions

Transactions = Annotated[
    int, typer.Option("--transactions", "-n", min=1, help="Number of transactions of each client.")
]
Clients = Annotated[int, typer.Option(min=1, help="Number of clients that append at once.")]
Interval = Annotated[
    float, typer.Option("--interval", "-i", min=0, help="Milliseconds between appends, on average.")
]
LoadPartitions = Annotated[
    str, typer.Option("--partitions", "-p", metavar="RANGES", help="Partitions, such as 0-6,7.")
]


def confirm_writing(
    where: Target, partitions: tuple[int, ...], transactions: int, content: str, *, yes: bool
) -> None:
    """Unless ``yes``, say what will be appended to which partitions, and ask for confirmation.

    ``transactions`` is their number; ``content`` says what data each of them has.
    """
    noun = "partition" if len(partitions) == 1 else "partitions"
    confirm(
        f"{transactions} transactions of {content} will be appended to {noun} "
        f"{format_partitions(partitions)} of {where.root} in {where.zookeeper}, and cannot be "
        "removed",
        yes=yes,
    )
