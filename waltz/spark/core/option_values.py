"""Parse the options of Spark's readers and writers, and the cluster that they name. Pure."""

from __future__ import annotations

import difflib
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, get_args

from waltz.metadata.core.outside_addresses import Access
from waltz.runtime.core.setting_names import DEFAULT_ROOT
from waltz.runtime.core.value_types import boolean, file, one_of, positive, text

_SPARK_OPTIONS = frozenset(("checkpointlocation",))
"""Spark's own options, in lower case. Spark passes them on to sources and sinks."""


class OptionError(ValueError):
    """An option or the schema of a DataFrame cannot be used. The text says what to change."""


@dataclass(frozen=True, slots=True)
class Option:
    """One option: its name, the parser of its text, its default and its meaning.

    ``convert`` is the parser; it raises ValueError for a text that is not valid.
    """

    name: str
    convert: Callable[[Any], Any]
    default: Any
    meaning: str


@dataclass(frozen=True, slots=True)
class TlsOptions:
    """The values of the ``tls.*`` options; their meanings are those of `waltz.net.TlsConfig`."""

    enabled: bool = True
    certificate: Path | None = None
    key: Path | None = None
    ca: Path | None = None
    server_name: str | None = None
    verify_server_name: bool = True


@dataclass(frozen=True, slots=True)
class ZooKeeperOptions:
    """The values of the options ``zookeeper.tls.*`` and ``zookeeper.authentication.*``.

    Their meanings are those of `waltz.metadata.ZooKeeperAccess`.
    """

    tls: TlsOptions
    credentials: Path | None = None
    by_certificate: bool = False


@dataclass(frozen=True, slots=True)
class ClusterOptions:
    """The options that name a cluster.

    At most one of ``cluster_file`` and ``zookeeper`` is set. If neither is, the driver finds the
    cluster like `waltz.connect` without arguments. ``root`` is the cluster's znode, and ``access``
    says which addresses are dialed; each is None if it is not set. ``tls`` is None if no option
    ``tls.*`` is set.
    ``zookeeper_access`` is None if no option ``zookeeper.tls.*`` or ``zookeeper.authentication.*``
    is set. ``timeout_seconds`` bounds the wait for the answer to a request or an append.
    """

    cluster_file: Path | None
    zookeeper: str | None
    root: str | None
    tls: TlsOptions | None
    timeout_seconds: int
    zookeeper_access: ZooKeeperOptions | None = None
    access: Access | None = None


CLUSTER_OPTIONS = (
    Option("cluster", Path, None, "cluster.json of a local cluster"),
    Option("zookeeper", text, None, "host:port of ZooKeeper, comma-separated"),
    Option("root", text, None, f"the cluster's znode; default {DEFAULT_ROOT}"),
    Option(
        "timeoutSeconds", positive, 60, "seconds to wait for a server's answer before a task fails"
    ),
    Option(
        "access",
        one_of(*get_args(Access)),
        None,
        "outside: dial the outside addresses of servers and storages, for a Spark outside the "
        "network of the cluster; default inside, or as in WALTZ_ACCESS or the profile if no option "
        "names the cluster",
    ),
    Option(
        "tls.enabled",
        boolean,
        True,
        "whether connections use TLS; without any option tls.*, as the servers have declared",
    ),
    Option("tls.certificate", file, None, "PEM file to present; without it, none is presented"),
    Option("tls.key", file, None, "PEM file of the certificate's key"),
    Option("tls.ca", file, None, "PEM file to verify peers with; without it, any peer is accepted"),
    Option("tls.serverName", text, None, "the name that the certificates of servers must have"),
    Option("tls.verifyServerName", boolean, True, "if off, certificates may have any name"),
    Option("zookeeper.tls.enabled", boolean, False, "whether the connection to ZooKeeper uses TLS"),
    Option("zookeeper.tls.certificate", file, None, "PEM file to present to ZooKeeper"),
    Option("zookeeper.tls.key", file, None, "PEM file of that certificate's key"),
    Option("zookeeper.tls.ca", file, None, "PEM file to verify ZooKeeper with"),
    Option("zookeeper.tls.serverName", text, None, "the name in the certificates of ZooKeeper"),
    Option(
        "zookeeper.tls.verifyServerName",
        boolean,
        True,
        "if off, certificates of ZooKeeper may have any name",
    ),
    Option("zookeeper.authentication.file", file, None, "file with user:password for ZooKeeper"),
    Option(
        "zookeeper.authentication.certificate",
        boolean,
        False,
        "whether the user in ZooKeeper is the subject of zookeeper.tls.certificate",
    ),
)


def option_values(options: Iterable[Option], given: Mapping[str, str], what: str) -> dict[str, Any]:
    """Return the value of each of ``options``, by name. Case does not matter in given names.

    ``what`` names the object of the options in errors, such as "the waltz source". Raises
    OptionError.
    """
    options = tuple(options)
    known = {option.name.lower(): option for option in options}
    values = {option.name: option.default for option in options}
    for name, raw in given.items():
        if name.lower() in _SPARK_OPTIONS:
            continue
        option = known.get(name.lower())
        if option is None:
            near = difflib.get_close_matches(name.lower(), known, n=1)
            hint = f"; did you mean {known[near[0]].name}?" if near else ""
            raise OptionError(f"{what} has no option {name}{hint}")
        try:
            values[option.name] = option.convert(raw)
        except ValueError as problem:
            raise OptionError(f"the option {option.name} is {raw!r}: {problem}") from None
    return values


def cluster_options(values: Mapping[str, Any], given: Mapping[str, str]) -> ClusterOptions:
    """Return the part of ``values`` that names the cluster. Raises OptionError.

    ``values`` are those of `option_values`, ``given`` the options that are set, as text.
    """
    cluster_file, zookeeper = values["cluster"], values["zookeeper"]
    if cluster_file is not None and zookeeper is not None:
        raise OptionError(
            "set either the option zookeeper (host:port, with root), or cluster (the path of a "
            "local cluster's cluster.json), not both"
        )
    names = [name.lower() for name in given]
    has_tls_options = any(name.startswith("tls.") for name in names)
    has_zookeeper_options = any(name.startswith("zookeeper.") for name in names)
    return ClusterOptions(
        cluster_file=cluster_file,
        zookeeper=zookeeper,
        root=values["root"],
        tls=_tls_options(values, "tls.") if has_tls_options else None,
        timeout_seconds=values["timeoutSeconds"],
        zookeeper_access=_zookeeper_options(values) if has_zookeeper_options else None,
        access=values["access"],
    )


def _zookeeper_options(values: Mapping[str, Any]) -> ZooKeeperOptions:
    """Return the options of the connection to ZooKeeper. Raises OptionError."""
    tls = _tls_options(values, "zookeeper.tls.")
    credentials = values["zookeeper.authentication.file"]
    by_certificate = values["zookeeper.authentication.certificate"]
    other_tls_options_are_set = tls != TlsOptions(enabled=tls.enabled)
    if not tls.enabled and other_tls_options_are_set:
        raise OptionError(
            "the options zookeeper.tls.* have no effect without zookeeper.tls.enabled: set it to "
            "true"
        )
    if credentials is not None and by_certificate:
        raise OptionError(
            "the options zookeeper.authentication.file and zookeeper.authentication.certificate "
            "exclude each other: set one"
        )
    if credentials is not None and (not tls.enabled or tls.ca is None):
        raise OptionError(
            "zookeeper.authentication.file has a password that is sent to ZooKeeper: set "
            "zookeeper.tls.enabled and zookeeper.tls.ca, so that only ZooKeeper receives it"
        )
    if by_certificate and (not tls.enabled or tls.certificate is None):
        raise OptionError(
            "zookeeper.authentication.certificate needs zookeeper.tls.enabled and "
            "zookeeper.tls.certificate: set them"
        )
    return ZooKeeperOptions(tls, credentials, by_certificate)


def _tls_options(values: Mapping[str, Any], prefix: str) -> TlsOptions:
    """Return the TLS options whose names begin with ``prefix``."""
    return TlsOptions(
        enabled=values[f"{prefix}enabled"],
        certificate=values[f"{prefix}certificate"],
        key=values[f"{prefix}key"],
        ca=values[f"{prefix}ca"],
        server_name=values[f"{prefix}serverName"],
        verify_server_name=values[f"{prefix}verifyServerName"],
    )
