"""``waltz console``: serve a web page that shows a cluster. Touches the network and ZooKeeper."""

from __future__ import annotations

import contextlib
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import typer

from waltz.admin.core.health import MIN_DISK_FREE
from waltz.cli.cluster_options import ClusterCommand, Target, target
from waltz.cli.options import MinDiskFree, examples
from waltz.cli.output import say
from waltz.cli.running import Failed, exit_on_expected_error, run
from waltz.client import Client, connect
from waltz.client.opening import Opening
from waltz.console.core.hosts import allowed_names, is_host_name, is_loopback
from waltz.console.shell.log_reader import LogPageReader
from waltz.console.shell.poller import ConsoleTarget, Poller, Source
from waltz.metadata.core.paths import Paths
from waltz.net import PLAINTEXT, ListenFailed, TlsConfig
from waltz.runtime.extras import check_installed
from waltz.runtime.process import stop_signal

app = typer.Typer()

DEFAULT_PORT = 8321


@dataclass(frozen=True, slots=True)
class _Endpoint:
    """Where and how the page is served.

    ``host`` is the address to listen on. ``port`` 0 means any free port. ``names`` are names of the
    host that browsers may use besides the address. The console refuses requests with any other name
    (`waltz.console.core.hosts`).
    """

    host: str
    port: int
    names: tuple[str, ...]
    tls: TlsConfig

    def url(self, bound_port: int) -> str:
        """Return the URL of the page; ``bound_port`` is the port that is in use."""
        scheme = "https" if self.tls.enabled else "http"
        return f"{scheme}://{self.host_in_url()}:{bound_port}/"

    def host_in_url(self) -> str:
        """Return the host as a URL has it: an IPv6 address is in brackets."""
        return f"[{self.host}]" if ":" in self.host else self.host


@app.command(
    "console",
    cls=ClusterCommand,
    epilog=examples(
        "waltz console",
        "waltz console --port 0 --interval 5",
        "waltz console --host 0.0.0.0 --allow-host console.example",
        "waltz console --certificate console.crt --key console.key",
    ),
)
def console_command(
    context: typer.Context,
    host: Annotated[
        str,
        typer.Option(
            metavar="ADDRESS",
            help="The address to listen on. With an address other than a loopback address, every "
            "host that reaches the port can read the log: the console has no login.",
        ),
    ] = "127.0.0.1",
    port: Annotated[
        int,
        typer.Option("--port", "-p", min=0, max=65535, help="The port; 0 chooses a free one."),
    ] = DEFAULT_PORT,
    allow_host: Annotated[
        list[str] | None,
        typer.Option(
            metavar="NAME",
            help="A name by which browsers reach the console, besides the address and localhost. "
            "May be repeated.",
        ),
    ] = None,
    certificate: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE",
            help="Serve HTTPS with this certificate, a PEM file. A renewed file is used without a "
            "restart. Needs --key.",
        ),
    ] = None,
    key: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="The key of --certificate, a PEM file."),
    ] = None,
    interval: Annotated[
        float, typer.Option("--interval", "-i", min=0.2, help="Seconds between two samples.")
    ] = 2.0,
    timeout: Annotated[
        float, typer.Option("--timeout", "-t", min=0.1, help="Seconds each process has to answer.")
    ] = 2.0,
    min_disk_free: MinDiskFree = MIN_DISK_FREE,
) -> None:
    """Serve a web page that shows the cluster and its log, read-only, until Ctrl-C or SIGTERM.

    The page works while processes or ZooKeeper do not answer; values that only they report are
    then shown as unknown. The cluster is sampled only while a browser shows the page.
    """
    with exit_on_expected_error():
        check_installed("waltz console", "console", "aiohttp")
    where = target(context)
    _check_name("--host", host)
    for name in allow_host or ():
        _check_name("--allow-host", name)
    if (certificate is None) != (key is None):
        raise typer.BadParameter("--certificate and --key go together: give both or neither")
    tls = PLAINTEXT if certificate is None else TlsConfig(certificate=certificate, key=key)
    endpoint = _Endpoint(host, port, tuple(allow_host or ()), tls)
    console_target = ConsoleTarget(
        where.zookeeper,
        where.root,
        where.tls,
        where.zookeeper_access,
        interval=interval,
        timeout_seconds=timeout,
        min_disk_free=min_disk_free,
        access=where.access,
    )
    # Ctrl-C raises KeyboardInterrupt until `_serve` handles the signal.
    with contextlib.suppress(KeyboardInterrupt):
        run(_serve(where, endpoint, console_target), seconds=None)


def _check_name(option: str, name: str) -> None:
    """Raise BadParameter if ``name``, a value of ``option``, is neither an address nor a name."""
    if not is_host_name(name):
        raise typer.BadParameter(
            f"{option} is {name!r}: it must be an address or a name, without http:// or a port"
        )


async def _serve(where: Target, endpoint: _Endpoint, console_target: ConsoleTarget) -> None:
    """Serve the page until SIGTERM or SIGINT."""
    # Imported only here: the module needs aiohttp, which only the extra `console` installs.
    from waltz.console.shell.http import serve_console

    # An unusable root or TLS file ends the command here. Otherwise each sample would fail.
    Paths(where.root)
    if where.tls is not None:
        where.tls.dialing_context()
    # A client needs several answers of ZooKeeper before it is open. So the limit is longer than
    # that of one answer, and at least a second.
    connect_seconds = console_target.timeout_seconds * 2 + 1

    def open_client() -> Opening[Client[bytes]]:
        return connect(
            where.zookeeper,
            root=where.root,
            tls=where.tls,
            access=where.access,
            zookeeper_access=where.zookeeper_access,
            connect_timeout=connect_seconds,
        )

    reader = LogPageReader(open_client)
    poller = Poller(Source(console_target))
    async with contextlib.aclosing(poller), contextlib.aclosing(reader):
        allowed = allowed_names(endpoint.host, endpoint.names)
        try:
            async with serve_console(
                endpoint.host, endpoint.port, allowed, poller, reader, endpoint.tls
            ) as bound_port:
                # SIGTERM does not end the first process of a container unless the process handles
                # the signal.
                stop = stop_signal()
                say(
                    f"the console of {where.root} is at {endpoint.url(bound_port)} (Ctrl-C ends it)"
                )
                if not is_loopback(endpoint.host):
                    say(
                        "warning: every host that reaches "
                        f"{endpoint.host_in_url()}:{bound_port} can read the log, because the "
                        "console has no login"
                    )
                await stop.wait()
        except ListenFailed as problem:
            raise Failed(str(problem)) from problem
