"""The four options that name a cluster, declared once for all verbs. Reads settings files.

A verb of the class `ClusterCommand` accepts them in addition to its own options. It gets the
cluster from `target`::

    @app.command("show", cls=ClusterCommand)
    def show_command(context: typer.Context) -> None:
        where = target(context)
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

import typer
from typer.core import TyperCommand

from waltz.cli.settings import read_cli_settings
from waltz.client.settings import TlsFile
from waltz.metadata.zookeeper_access import OPEN_ACCESS, ZooKeeperAccess
from waltz.net import PLAINTEXT, TlsConfig
from waltz.runtime.cluster_file import BadClusterFile, read_cluster_file
from waltz.runtime.configuration import ConfigError, read_settings
from waltz.runtime.core.setting_names import DEFAULT_ROOT

LOCAL_DIRECTORY = Path("waltz-local")
"""The default directory of a cluster that ``waltz local up`` starts."""
_DEFAULT_CLUSTER_FILE = LOCAL_DIRECTORY / "cluster.json"
_PANEL = "Which cluster"


ZooKeeper = Annotated[
    str | None,
    typer.Option(
        "--zookeeper",
        "-z",
        envvar="WALTZ_ZOOKEEPER",
        metavar="HOST:PORT[,…]",
        help="The addresses of ZooKeeper.",
        rich_help_panel=_PANEL,
    ),
]
Root = Annotated[
    str | None,
    typer.Option(
        "--root",
        "-r",
        envvar="WALTZ_ROOT",
        metavar="PATH",
        help=f"The cluster's znode. Default: {DEFAULT_ROOT}.",
        rich_help_panel=_PANEL,
    ),
]
ClusterFile = Annotated[
    Path | None,
    typer.Option(
        "--cluster",
        "-c",
        envvar="WALTZ_CLUSTER",
        metavar="FILE",
        help="A file that names the cluster: cluster.json of a local cluster, or the YAML file of "
        "the tools of Waltz 0.13.2. The other options override it. "
        f"Default: {_DEFAULT_CLUSTER_FILE}, if that file exists.",
        rich_help_panel=_PANEL,
    ),
]
Tls = Annotated[
    str | None,
    typer.Option(
        "--tls",
        envvar="WALTZ_TLS",
        metavar="on|off|FILE",
        help="Whether connections use TLS. FILE is a YAML file with the keys certificate, key and "
        "ca (paths of PEM files) and serverName. Default: as in the cluster file, or on if no "
        "cluster file is used.",
        rich_help_panel=_PANEL,
    ),
]


class ClusterNotNamed(typer.BadParameter):
    """The command line names no cluster, or one of the four options is invalid."""


@dataclass(frozen=True, slots=True)
class Target:
    """The cluster that a verb works on: its ZooKeeper, its znode, and the ways to connect."""

    zookeeper: str
    root: str
    tls: TlsConfig
    zookeeper_access: ZooKeeperAccess = OPEN_ACCESS


def named_cluster(
    zookeeper: ZooKeeper = None,
    root: Root = None,
    cluster: ClusterFile = None,
    tls: Tls = None,
) -> Target:
    """Return the cluster that the options name. Raises ClusterNotNamed."""
    if cluster is None and zookeeper is None and _DEFAULT_CLUSTER_FILE.exists():
        cluster = _DEFAULT_CLUSTER_FILE
    if cluster is not None and cluster.suffix in (".yml", ".yaml"):
        try:
            settings = read_cli_settings(cluster)
        except ConfigError as problem:
            raise ClusterNotNamed(str(problem)) from problem
        return Target(
            zookeeper or settings.zookeeper,
            root or settings.root,
            tls_from_option(tls, default=settings.tls_settings.config()),
            settings.zookeeper_access,
        )
    if cluster is not None:
        try:
            description = read_cluster_file(cluster)
        except BadClusterFile as problem:
            raise ClusterNotNamed(str(problem)) from problem
        return Target(
            zookeeper or description.zookeeper,
            root or description.root,
            tls_from_option(tls, default=TlsConfig() if description.tls else PLAINTEXT),
        )
    if zookeeper is None:
        raise ClusterNotNamed(
            "no cluster is named: use --zookeeper HOST:PORT (and --root), or --cluster FILE; "
            "or start one here with: waltz local up"
        )
    return Target(zookeeper, root or DEFAULT_ROOT, tls_from_option(tls, default=TlsConfig()))


def _cluster_options() -> list[Any]:
    """Return the command-line options that the signature of `named_cluster` declares."""
    declaring = typer.Typer(add_completion=False)
    declaring.command()(named_cluster)
    return list(typer.main.get_command(declaring).params)


class ClusterCommand(TyperCommand):
    """A verb that works on a cluster: it has the options of `named_cluster` besides its own."""

    def __init__(self, name: str | None, *, params: list[Any] | None = None, **rest: Any) -> None:
        self._cluster_options = _cluster_options()
        super().__init__(name, params=[*(params or ()), *self._cluster_options], **rest)

    def invoke(self, ctx: Any) -> Any:
        """Store the named cluster for `target`, then run the verb.

        The function of the verb has no parameters for these options, so they are removed.
        """
        values = {option.name: ctx.params.pop(option.name) for option in self._cluster_options}
        ctx.obj = named_cluster(**values)
        return super().invoke(ctx)


def target(context: typer.Context) -> Target:
    """Return the cluster that the command line of a `ClusterCommand` names."""
    found = context.obj
    assert isinstance(found, Target), "the verb is not a ClusterCommand"
    return found


def tls_from_option(option: str | None, *, default: TlsConfig) -> TlsConfig:
    """Return the configuration for ``on``, ``off`` or the path of a file; for None, ``default``.

    Raises ClusterNotNamed.
    """
    if option is None:
        return default
    if option.lower() == "off":
        return PLAINTEXT
    if option.lower() == "on":
        return TlsConfig()
    try:
        return read_settings(TlsFile, Path(option), {}).config()
    except ConfigError as problem:
        raise ClusterNotNamed(f"--tls must be on, off or a file: {problem}") from problem
