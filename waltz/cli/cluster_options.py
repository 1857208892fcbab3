"""The options that name a cluster, declared once for all verbs. Reads settings files.

A verb of the class `ClusterCommand` accepts these options in addition to its own. The function of
the verb gets the cluster from `target`::

    @app.command("show", cls=ClusterCommand)
    def show_command(context: typer.Context) -> None:
        where = target(context)
"""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from functools import cache
from pathlib import Path
from typing import Annotated, Any

import typer
from typer.core import TyperCommand

from waltz.cli.options import check_finite
from waltz.cli.suggested import options_given
from waltz.metadata.core.connect_string import connect_string_problem
from waltz.metadata.core.outside_addresses import Access
from waltz.metadata.core.paths import BadRoot, Paths
from waltz.metadata.zookeeper_access import OPEN_ACCESS, ZooKeeperAccess
from waltz.net import PLAINTEXT, TlsConfig
from waltz.runtime.cluster_file import (
    CLUSTER_FILE,
    LOCAL_DIRECTORY,
    BadClusterFile,
    cluster_file_at,
    read_cluster_file,
)
from waltz.runtime.core.setting_names import ACCESS_VARIABLE, DEFAULT_ROOT, TLS_VARIABLE
from waltz.runtime.profiles import (
    AS_DECLARED,
    PROFILE_VARIABLE,
    BadProfile,
    Profile,
    find_profile,
)

_DEFAULT_CLUSTER_FILE = LOCAL_DIRECTORY / CLUSTER_FILE
_CLUSTER_FILE_VARIABLE = "WALTZ_CLUSTER"
_PANEL = "Which cluster"
_UsageError: type[Exception] = typer.BadParameter.__mro__[1]
"""The class UsageError; see `waltz.runtime.one_line` for why it is not imported."""
_NEGATIVE_NUMBER = re.compile(r"-\d+")


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
        envvar=_CLUSTER_FILE_VARIABLE,
        metavar="FILE",
        help="A file that names the cluster: cluster.json of a local cluster, or its directory, or "
        "the YAML file of the tools of Waltz 0.13.2. The other options override it. "
        f"Default: {_DEFAULT_CLUSTER_FILE}, if that file exists.",
        rich_help_panel=_PANEL,
    ),
]
ProfileName = Annotated[
    str | None,
    typer.Option(
        "--profile",
        envvar=PROFILE_VARIABLE,
        metavar="NAME",
        help="A cluster that waltz profile add has named. The other options override it. Default: "
        "the profile in use, if no other option and no local cluster names the cluster.",
        rich_help_panel=_PANEL,
    ),
]
Tls = Annotated[
    str | None,
    typer.Option(
        "--tls",
        envvar=TLS_VARIABLE,
        metavar="on|off|FILE",
        help="Whether connections use TLS. FILE is a YAML file with the keys certificate, key and "
        "ca (paths of PEM files) and serverName. Default: as in the cluster file; without one, as "
        "the servers have declared in ZooKeeper, or on if they have not.",
        rich_help_panel=_PANEL,
    ),
]
AccessOption = Annotated[
    str | None,
    typer.Option(
        "--access",
        envvar=ACCESS_VARIABLE,
        metavar="inside|outside",
        help="Which addresses of servers and storages are dialed: inside, those that they have "
        "registered; outside, those of waltz cluster outside list, for a command outside the "
        "network of the cluster. Default: as in the profile or YAML file, or inside.",
        rich_help_panel=_PANEL,
    ),
]


class ClusterNotNamed(typer.BadParameter):
    """The command line names no cluster, or one of the options is invalid."""


@dataclass(frozen=True, slots=True)
class Target:
    """The cluster that a verb works on: its ZooKeeper, its znode, and the ways to connect.

    Two targets are equal if verbs would connect to the same cluster in the same way.
    """

    zookeeper: str
    root: str
    tls: TlsConfig | None
    """None if no option, file or profile says whether to use TLS. Then `waltz.cli.running.tls_of`
    follows the servers' declaration in ZooKeeper."""
    zookeeper_access: ZooKeeperAccess = OPEN_ACCESS
    access: Access = "inside"
    """Which addresses of servers and storages are dialed. `waltz.cli.running.network_of` returns
    the network that dials them."""
    local_directory: Path | None = field(default=None, compare=False)
    """The directory of the local cluster, None for other clusters."""
    typed_options: tuple[str, ...] = field(default=(), compare=False)
    """The words of the command line that name the cluster, for commands that messages suggest."""


def named_cluster(
    zookeeper: ZooKeeper = None,
    root: Root = None,
    cluster: ClusterFile = None,
    tls: Tls = None,
    profile: ProfileName = None,
    access: AccessOption = None,
) -> Target:
    """Return the cluster that the options name. Raises ClusterNotNamed.

    The first of these that exists names the cluster: the file ``cluster``, the profile ``profile``,
    the address ``zookeeper``, the file of a local cluster in this directory, the profile in use.
    Beside a file or a profile, the options ``zookeeper``, ``root``, ``tls`` and ``access`` override
    its values.

    This function cannot see which values are from environment variables. So `ClusterCommand` first
    removes those that the command line overrides (`_drop_overridden`).
    """
    return _named(zookeeper, root, cluster, tls, profile, access, os.environ)


def _check_texts(texts: Mapping[str, str | None]) -> None:
    """Raise ClusterNotNamed if an option of ``texts`` is empty."""
    for option, text in texts.items():
        # A script passes an empty text for "$NAME" if the variable NAME is not set. With the
        # default value instead, the verb would work on another cluster.
        if text is not None and not text.strip():
            raise ClusterNotNamed(f"{option} is empty: give it a value, or leave it out")


def _named(
    zookeeper: str | None,
    root: str | None,
    cluster: Path | None,
    tls: str | None,
    profile: str | None,
    access: str | None,
    environment: Mapping[str, str],
) -> Target:
    """Return what `named_cluster` returns; ``environment`` overrides values of a settings file."""
    texts = {"--zookeeper": zookeeper, "--root": root, "--tls": tls}
    _check_texts(texts | {"--profile": profile, "--access": access})
    access_override = None if access is None else access_from_option(access)
    if cluster is None and zookeeper is None and profile is None and _DEFAULT_CLUSTER_FILE.exists():
        cluster = _DEFAULT_CLUSTER_FILE
    if cluster is not None and cluster.suffix in (".yml", ".yaml"):
        # A settings file of the tools of Waltz 0.13.2. Few commands need the libraries for it.
        from waltz.cli.settings import ConfigError, read_cli_settings

        try:
            settings = read_cli_settings(cluster, environment)
        except ConfigError as problem:
            raise ClusterNotNamed(str(problem)) from problem
        return Target(
            zookeeper or settings.zookeeper,
            root or settings.root,
            tls_from_option(tls) or settings.tls_settings.config(),
            zookeeper_access=settings.zookeeper_access,
            access=access_override or settings.access,
        )
    if cluster is not None:
        # The file of a local cluster.
        try:
            description = read_cluster_file(cluster)
        except BadClusterFile as problem:
            raise ClusterNotNamed(str(problem)) from problem
        return Target(
            zookeeper or description.zookeeper,
            root or description.root,
            tls_from_option(tls) or (TlsConfig() if description.tls else PLAINTEXT),
            access=access_override or "inside",
            # With another ZooKeeper, the cluster may be another one than the local cluster.
            local_directory=cluster_file_at(cluster).parent if zookeeper is None else None,
        )
    if zookeeper is None or profile is not None:
        # The named profile, or the one in use if nothing else names a cluster.
        try:
            chosen = find_profile(profile)
        except BadProfile as problem:
            raise ClusterNotNamed(str(problem)) from problem
        if chosen is None:
            raise ClusterNotNamed(
                "no cluster is named: use --zookeeper HOST:PORT (and --root), --cluster FILE or "
                "--profile NAME; or start one here with: waltz local up"
            )
        return Target(
            zookeeper or chosen.zookeeper,
            root or chosen.root,
            tls_from_option(tls) or _tls_of_profile(chosen),
            # The value of the profile is checked only if no option overrides it.
            access=access_override
            or access_from_option(chosen.access, "the access of the profile"),
        )
    return Target(
        zookeeper, root or DEFAULT_ROOT, tls_from_option(tls), access=access_override or "inside"
    )


@cache
def _cluster_options() -> tuple[Any, ...]:
    """Return the command-line options that the signature of `named_cluster` declares."""
    declaring = typer.Typer(add_completion=False)
    declaring.command()(named_cluster)
    return tuple(typer.main.get_command(declaring).params)


class ClusterCommand(TyperCommand):
    """A verb that works on a cluster: it has its own options and those of `named_cluster`."""

    def __init__(self, name: str | None, *, params: list[Any] | None = None, **rest: Any) -> None:
        self._cluster_options = _cluster_options()
        super().__init__(name, params=[*(params or ()), *self._cluster_options], **rest)

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """Parse the command line; take a negative number as a value, although it begins with -.

        Otherwise the error for ``-1`` would be that there is no such option, and not which values
        the argument accepts.
        """
        try:
            return super().parse_args(ctx, list(args))
        except _UsageError as problem:
            if _NEGATIVE_NUMBER.fullmatch(getattr(problem, "option_name", "")) is None:
                raise
            # With this, the parser takes an option that it does not know as an argument.
            ctx.ignore_unknown_options = True
            return super().parse_args(ctx, list(args))

    def invoke(self, ctx: Any) -> Any:
        """Store the named cluster for `target`, then run the verb.

        The function of the verb has no parameters for the options that name a cluster. So these
        options are removed from ``ctx.params``.
        """
        values = {option.name: ctx.params.pop(option.name) for option in self._cluster_options}
        typed_options: list[str] = []
        for option in self._cluster_options:
            if _is_typed(ctx, option.name):
                typed_options += [option.opts[0], str(values[option.name])]
        check_finite(ctx.params)
        _drop_overridden(ctx, values)
        named = _named(**values, environment=_settings_environment(ctx))
        try:
            Paths(named.root)
        except BadRoot as problem:
            raise ClusterNotNamed(str(problem)) from problem
        if (problem_text := connect_string_problem(named.zookeeper)) is not None:
            raise ClusterNotNamed(problem_text)
        ctx.obj = replace(named, typed_options=tuple(typed_options))
        with options_given(typed_options):
            return super().invoke(ctx)


def _is_typed(ctx: Any, name: str) -> bool:
    """Whether an option is on the command line, and not from the environment or a default."""
    # Compared by name: the class of ``source`` is in click, or in the copy of click in typer.
    source = ctx.get_parameter_source(name)
    return source is not None and source.name == "COMMANDLINE"


def _drop_overridden(ctx: Any, values: dict[str, Any]) -> None:
    """Set to None those of ``values`` from environment variables that the command line overrides.

    A typed ``cluster`` or ``profile`` describes the whole cluster: no address, root, TLS or access
    from the environment may replace a part of the description. A typed ``zookeeper`` takes the
    place of a cluster file or profile from the environment.

    Raises ClusterNotNamed if both ``cluster`` and ``profile`` remain: both were typed, or both are
    from the environment.
    """
    typed = {name for name in values if _is_typed(ctx, name)}
    if typed & {"cluster", "profile"}:
        overridden = values.keys() - typed
    elif "zookeeper" in typed:
        overridden = {"cluster", "profile"}
    else:
        overridden = set()
    for name in overridden:
        values[name] = None
    if values["cluster"] is None or values["profile"] is None:
        return
    if "cluster" in typed:
        raise ClusterNotNamed("--cluster and --profile both name a cluster: give one of them")
    raise ClusterNotNamed(
        f"the variables {_CLUSTER_FILE_VARIABLE} and {PROFILE_VARIABLE} both name a cluster: "
        "unset one of them, or give --cluster or --profile"
    )


def _settings_environment(ctx: Any) -> Mapping[str, str]:
    """Return the environment variables that override values of a settings file.

    A typed file describes the whole cluster, as in `_drop_overridden`: then the variables of the
    options in this module are left out.
    """
    if not _is_typed(ctx, "cluster"):
        return os.environ
    option_variables = {option.envvar for option in _cluster_options()}
    return {name: value for name, value in os.environ.items() if name not in option_variables}


def target(context: typer.Context) -> Target:
    """Return the cluster that the command line of a `ClusterCommand` names."""
    named = context.obj
    assert isinstance(named, Target), "the verb is not a ClusterCommand"
    return named


def access_from_option(value: str, name: str = "--access") -> Access:
    """Return the access that the value of an option means. Raises ClusterNotNamed.

    ``name`` is what an error calls the option.
    """
    match value.lower():
        case "inside":
            return "inside"
        case "outside":
            return "outside"
    raise ClusterNotNamed(f"{name} is {value!r}: it must be inside or outside")


def _tls_of_profile(profile: Profile) -> TlsConfig | None:
    """Return the configuration in a profile, None for `AS_DECLARED`. Raises ClusterNotNamed."""
    if profile.tls == AS_DECLARED:
        return None
    return tls_from_option(profile.tls, "the tls of the profile")


def tls_from_option(value: str | None, name: str = "--tls") -> TlsConfig | None:
    """Return the configuration for ``on``, ``off`` or the path of a file; None for None.

    ``name`` is what an error calls the option. Raises ClusterNotNamed.
    """
    if value is None:
        return None
    if value.lower() == "off":
        return PLAINTEXT
    if value.lower() == "on":
        return TlsConfig()
    from waltz.cli.settings import ConfigError, read_tls_file

    try:
        return read_tls_file(Path(value))
    except ConfigError as problem:
        raise ClusterNotNamed(f"{name} must be on, off or a file: {problem}") from problem
