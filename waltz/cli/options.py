"""The options that verbs share, and the cluster that they name. Reads files of settings."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, TypeVar

import typer

from waltz.config import ConfigError, read_settings, tls_config, tls_keys
from waltz.net import PLAINTEXT, TlsConfig

T = TypeVar("T")

DEFAULT_ROOT = "/waltz"
LOCAL_DIRECTORY = Path("waltz-local")
_DEFAULT_CLUSTER_FILE = LOCAL_DIRECTORY / "cluster.json"

ZooKeeper = Annotated[
    str | None,
    typer.Option(
        "--zookeeper",
        "-z",
        envvar="WALTZ_ZOOKEEPER",
        metavar="HOST:PORT[,…]",
        help="Where ZooKeeper is.",
    ),
]
Root = Annotated[
    str | None,
    typer.Option(
        "--root",
        "-r",
        envvar="WALTZ_ROOT",
        metavar="PATH",
        help=f"The cluster's znode. Without it: {DEFAULT_ROOT}.",
    ),
]
ClusterFile = Annotated[
    Path | None,
    typer.Option(
        "--cluster",
        "-c",
        envvar="WALTZ_CLUSTER",
        metavar="FILE",
        help="cluster.json of a local cluster, in place of the other options. "
        f"Without any: {_DEFAULT_CLUSTER_FILE}, if it is there.",
    ),
]
Tls = Annotated[
    str | None,
    typer.Option(
        "--tls",
        envvar="WALTZ_TLS",
        metavar="on|off|FILE",
        help="Whether connections are secured; FILE is YAML with certificate, key and ca, which "
        "are PEM files, and serverName. Without it: on, or what the cluster file says.",
    ),
]


class CannotTell(typer.BadParameter):
    """The command line does not say which cluster is meant, or not in a way that is understood."""


@dataclass(frozen=True, slots=True)
class Target:
    """The cluster that a verb is about."""

    zookeeper: str
    root: str
    tls: TlsConfig


def target(
    zookeeper: str | None, root: str | None, cluster_file: Path | None, tls: str | None
) -> Target:
    """Return the cluster that the options name. Raises CannotTell."""
    described: dict[str, Any] = {}
    if cluster_file is None and zookeeper is None and _DEFAULT_CLUSTER_FILE.exists():
        cluster_file = _DEFAULT_CLUSTER_FILE
    if cluster_file is not None:
        described = _read_cluster_file(cluster_file)
    found = zookeeper or described.get("zookeeper")
    if found is None:
        raise CannotTell(
            "which cluster? Name it with --zookeeper HOST:PORT (and --root), or with --cluster "
            "FILE; or start one here with: waltz local up"
        )
    return Target(
        found,
        root or described.get("root") or DEFAULT_ROOT,
        _tls(tls, default=bool(described.get("tls", True))),
    )


def parsed(parse: Callable[[str], T], text: str) -> T:
    """Return what ``parse`` makes of an argument; its ValueError becomes a usage error."""
    try:
        return parse(text)
    except ValueError as problem:
        raise typer.BadParameter(str(problem)) from problem


def examples(*lines: str) -> str:
    """Return a help text's last part: commands to try."""
    # A paragraph each, because lines of one are joined.
    return "\n\n".join(("Examples:", *lines))


def _read_cluster_file(path: Path) -> dict[str, Any]:
    try:
        described = json.loads(path.read_text())
    except OSError as problem:
        raise CannotTell(
            f"cannot read {path}: {problem.strerror}; the file of a local cluster is there only "
            "while it runs"
        ) from problem
    except ValueError as problem:
        raise CannotTell(f"{path} is not the cluster.json of a local cluster: {problem}") from None
    if not isinstance(described, dict) or "zookeeper" not in described:
        raise CannotTell(f"{path} is not the cluster.json of a local cluster")
    return described


def _tls(option: str | None, *, default: bool) -> TlsConfig:
    if option is None:
        return TlsConfig() if default else PLAINTEXT
    if option.lower() == "off":
        return PLAINTEXT
    if option.lower() == "on":
        return TlsConfig()
    try:
        return tls_config(read_settings(Path(option), tls_keys(""), {}), "")
    except ConfigError as problem:
        raise CannotTell(f"--tls must be on, off or a file: {problem}") from problem
