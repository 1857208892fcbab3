"""Options of the verbs that make load: how much of it, how fast, and where."""

from __future__ import annotations

from typing import Annotated

import typer

Transactions = Annotated[
    int, typer.Option("--transactions", "-n", min=1, help="How many, of each client.")
]
Clients = Annotated[int, typer.Option(min=1, help="How many clients append at once.")]
Interval = Annotated[
    float, typer.Option("--interval", "-i", min=0, help="Milliseconds between appends, on average.")
]
Used = Annotated[
    str, typer.Option("--partitions", "-p", metavar="RANGES", help="Partitions, such as 0-6,7.")
]
