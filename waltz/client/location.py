"""Find the cluster that a client connects to. Reads files and the environment.

The variables are those of the command line: ``WALTZ_ZOOKEEPER``, ``WALTZ_ROOT``, ``WALTZ_CLUSTER``,
``WALTZ_PROFILE``, ``WALTZ_TLS`` and ``WALTZ_ACCESS``.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path

from waltz.client.core.errors import ClusterNotFound
from waltz.metadata.core.outside_addresses import Access
from waltz.net import PLAINTEXT, TlsConfig
from waltz.runtime.cluster_file import BadClusterFile, read_cluster_file
from waltz.runtime.core.setting_names import ACCESS_VARIABLE, DEFAULT_ROOT, TLS_VARIABLE
from waltz.runtime.extras import needs_extra
from waltz.runtime.profiles import (
    AS_DECLARED,
    PROFILE_VARIABLE,
    BadProfile,
    Profile,
    find_profile,
)

LOCAL_CLUSTER_FILE = Path("waltz-local/cluster.json")
"""The description of the cluster that ``waltz local up`` starts in the working directory."""


@dataclass(frozen=True, slots=True)
class ClusterLocation:
    """The addresses of ZooKeeper, the root znode, and how to connect to the servers.

    ``tls`` is None if nothing says whether to use TLS: then the servers' declaration in ZooKeeper
    decides. ``access`` says which addresses of servers are dialed.
    """

    zookeeper: str
    root: str
    tls: TlsConfig | None
    access: Access = "inside"


def find_cluster(
    place: str | Path | None,
    root: str | None,
    tls: TlsConfig | None,
    environment: Mapping[str, str] = os.environ,
    *,
    access: Access | None = None,
) -> ClusterLocation:
    """Return the cluster that the arguments of `waltz.connect` name.

    ``place`` is the path of a ``cluster.json``, the addresses of ZooKeeper, or None. With a place,
    the environment is not read. Without one, the cluster is the first of these that exists:

    1. the description at the path in ``WALTZ_CLUSTER``
    2. the cluster of ``WALTZ_ZOOKEEPER``, or that of the profile in ``WALTZ_PROFILE``; if both are
       set, the addresses of ZooKeeper are those of the variable, and the profile has the rest
    3. the local cluster whose description is in the working directory
    4. the cluster of the profile in use

    Single settings come first from ``root``, ``tls`` and ``access``, then from ``WALTZ_ZOOKEEPER``,
    ``WALTZ_ROOT``, ``WALTZ_TLS`` and ``WALTZ_ACCESS``, and then from the cluster that is found.
    Raises ClusterNotFound, and waltz.runtime.configuration.ConfigError if the file of TLS settings
    that ``WALTZ_TLS`` or a profile names cannot be used.
    """
    variables = environment if place is None else {}
    zookeeper = variables.get("WALTZ_ZOOKEEPER")
    root = root or variables.get("WALTZ_ROOT")
    tls = tls or _tls_of(variables.get(TLS_VARIABLE))
    access = access or _access_of(variables.get(ACCESS_VARIABLE), ACCESS_VARIABLE)
    profile_name = variables.get(PROFILE_VARIABLE) or None
    # Any WALTZ_ZOOKEEPER, even an empty one, excludes the local cluster in the working directory.
    is_named = zookeeper is not None or profile_name is not None
    file = _file_of(place, variables.get("WALTZ_CLUSTER"), is_named=is_named)
    if file is not None:
        return replace(_described(file, zookeeper, root, tls), access=access or "inside")
    if place is not None:
        zookeeper = str(place)
    elif not zookeeper:
        zookeeper = None  # An empty variable names no address.
    # No profile is read if ``place`` names the cluster, or if WALTZ_ZOOKEEPER names it and
    # WALTZ_PROFILE is not set.
    if zookeeper is None or profile_name is not None:
        profile = _profile(profile_name, variables)
        if profile is not None:
            return ClusterLocation(
                zookeeper or profile.zookeeper,
                root or profile.root,
                tls or _tls_of_profile(profile),
                access or _access_of(profile.access, "the access of the profile") or "inside",
            )
    if zookeeper is None:
        raise ClusterNotFound(
            "no cluster is named: pass the addresses of ZooKeeper or the path of a "
            "cluster.json to connect, set WALTZ_ZOOKEEPER, WALTZ_CLUSTER or WALTZ_PROFILE, or "
            "start a cluster here with: waltz local up"
        )
    return ClusterLocation(zookeeper, root or DEFAULT_ROOT, tls, access or "inside")


def _described(
    file: Path, zookeeper: str | None, root: str | None, tls: TlsConfig | None
) -> ClusterLocation:
    """Return the cluster that ``file`` describes; the other arguments override the description.

    Raises ClusterNotFound.
    """
    try:
        described = read_cluster_file(file)
    except BadClusterFile as problem:
        raise ClusterNotFound(str(problem)) from None
    tls = tls or (TlsConfig() if described.tls else PLAINTEXT)
    return ClusterLocation(zookeeper or described.zookeeper, root or described.root, tls)


def _profile(name: str | None, environment: Mapping[str, str]) -> Profile | None:
    """Return the profile ``name``, or without a name the profile in use; None if there is none.

    Raises ClusterNotFound if the profile cannot be used.
    """
    try:
        return find_profile(name, environment)
    except BadProfile as problem:
        raise ClusterNotFound(str(problem)) from None


def _file_of(place: str | Path | None, variable: str | None, *, is_named: bool) -> Path | None:
    """Return the file that describes the cluster, None if no file does.

    ``variable`` is the value of ``WALTZ_CLUSTER``. ``is_named`` tells whether
    ``WALTZ_ZOOKEEPER`` (even if it is empty) or ``WALTZ_PROFILE`` is set: then the description in
    the working directory is not used. Raises ClusterNotFound if ``variable`` names a file of
    another kind.
    """
    if place is not None:
        is_file = isinstance(place, Path) or place.endswith(".json")
        return Path(place) if is_file else None
    if variable:
        if variable.endswith((".yml", ".yaml")):
            raise ClusterNotFound(
                f"WALTZ_CLUSTER is {variable}, a settings file of the command line: open the "
                "client with connect_as_configured, or set WALTZ_ZOOKEEPER and WALTZ_ROOT"
            )
        return Path(variable)
    return LOCAL_CLUSTER_FILE if not is_named and LOCAL_CLUSTER_FILE.exists() else None


def _access_of(value: str | None, name: str) -> Access | None:
    """Return the access that ``value`` means, None if it is empty. Raises ClusterNotFound."""
    match (value or "").lower():
        case "":
            return None
        case "inside":
            return "inside"
        case "outside":
            return "outside"
    raise ClusterNotFound(f"{name} is {value!r}: it must be inside or outside")


def _tls_of_profile(profile: Profile) -> TlsConfig | None:
    """Return the TLS settings of a profile, None if it follows the servers' declaration."""
    return None if profile.tls == AS_DECLARED else _tls_of(profile.tls)


def _tls_of(value: str | None) -> TlsConfig | None:
    """Return the TLS settings that ``value`` means: ``on``, ``off`` or the path of a file.

    ``value`` is that of ``WALTZ_TLS`` or of a profile. Returns None if it is empty. Raises
    waltz.runtime.configuration.ConfigError if the file cannot be used, and ExtraMissing.
    """
    match (value or "").lower():
        case "":
            return None
        case "off":
            return PLAINTEXT
        case "on":
            return TlsConfig()
    with needs_extra(f"{TLS_VARIABLE} with a file", "config"):
        from waltz.client.settings import TlsFile
        from waltz.runtime.configuration import read_settings

    return read_settings(TlsFile, Path(value or ""), {}).config()
