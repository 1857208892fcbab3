"""Assemble the command ``waltz``."""

from __future__ import annotations

import typer

from waltz.cli.access import commands as access
from waltz.cli.bench import commands as bench
from waltz.cli.cluster import commands as cluster
from waltz.cli.config import commands as config
from waltz.cli.console import commands as console
from waltz.cli.debug import commands as debug
from waltz.cli.disk import commands as disk
from waltz.cli.doctor import commands as doctor
from waltz.cli.local import commands as local
from waltz.cli.log import commands as log
from waltz.cli.options import examples
from waltz.cli.profile import commands as profile
from waltz.cli.server import commands as server
from waltz.cli.storage import commands as storage
from waltz.cli.top import commands as top
from waltz.runtime.one_line import OneLineGroup
from waltz.runtime.service import Version

app = typer.Typer(
    cls=OneLineGroup,
    no_args_is_help=True,
    help="Run, operate and use a Waltz transaction log.",
    epilog=examples(
        "waltz local up --detach",
        "waltz log append 0 hello",
        "waltz log tail 0",
        "waltz doctor",
        "waltz local down",
    ),
)
app.add_typer(local.app, name="local")
app.add_typer(cluster.app, name="cluster")
app.add_typer(server.app, name="server")
app.add_typer(storage.app, name="storage")
app.add_typer(access.app, name="access")
app.add_typer(log.app, name="log")
app.add_typer(bench.app, name="bench")
app.add_typer(disk.app, name="disk")
app.add_typer(config.app, name="config")
app.add_typer(debug.app, name="debug")
app.add_typer(profile.app, name="profile")
app.add_typer(top.app)
app.add_typer(console.app)
app.add_typer(doctor.app)


@app.callback()
def program(_version: Version = False) -> None:
    """Declare the options of ``waltz`` itself, which come before the noun."""


def main() -> None:
    """Run the command line."""
    app()
