"""Assemble the command ``waltz``."""

from __future__ import annotations

import typer

from waltz.cli.access import commands as access
from waltz.cli.client import commands as client
from waltz.cli.cluster import commands as cluster
from waltz.cli.config import commands as config
from waltz.cli.console import commands as console
from waltz.cli.disk import commands as disk
from waltz.cli.local import commands as local
from waltz.cli.log import commands as log
from waltz.cli.options import examples
from waltz.cli.perf import commands as perf
from waltz.cli.server import commands as server
from waltz.cli.storage import commands as storage
from waltz.cli.top import commands as top
from waltz.runtime.service import Version

app = typer.Typer(
    no_args_is_help=True,
    help="Run, operate and use a Waltz transaction log.",
    epilog=examples(
        "waltz local up --detach",
        "waltz log append 0 hello",
        "waltz log tail 0",
        "waltz cluster verify",
        "waltz local down",
    ),
)
app.add_typer(local.app, name="local")
app.add_typer(cluster.app, name="cluster")
app.add_typer(server.app, name="server")
app.add_typer(storage.app, name="storage")
app.add_typer(access.app, name="access")
app.add_typer(log.app, name="log")
app.add_typer(client.app, name="client")
app.add_typer(perf.app, name="perf")
app.add_typer(disk.app, name="disk")
app.add_typer(config.app, name="config")
app.add_typer(top.app)
app.add_typer(console.app)


@app.callback()
def program(_version: Version = False) -> None:
    """Declare the options of ``waltz`` itself, which come before the noun."""


def main() -> None:
    """Run the command line."""
    app()
