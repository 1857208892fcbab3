"""Options of the verbs that put load on a cluster."""

from __future__ import annotations

from typing import Annotated

import typer

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
