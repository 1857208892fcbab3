"""Parse the options of Spark's readers and writers, and the cluster that they name. Pure."""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from waltz.net import TlsConfig
from waltz.runtime.cluster_file import DEFAULT_ROOT
from waltz.runtime.configuration import Key, positive, text, tls_config, tls_keys

_OF_SPARK = frozenset(("checkpointlocation",))
"""Spark's own options, which it passes on to sources and sinks."""


class OptionError(ValueError):
    """An option is invalid; the text names it and says what is expected."""


@dataclass(frozen=True, slots=True)
class ClusterOptions:
    """The cluster: named by ``cluster_file``, or by ``zookeeper`` and ``root``.

    ``tls`` is None if no TLS option is set. ``timeout_seconds`` bounds the wait for the answer to a
    request or an append.
    """

    cluster_file: Path | None
    zookeeper: str | None
    root: str | None
    tls: TlsConfig | None
    timeout_seconds: int


CLUSTER_KEYS = (
    Key("cluster", Path, None, "cluster.json of a local cluster"),
    Key("zookeeper", text, None, "host:port of ZooKeeper, comma-separated"),
    Key("root", text, None, f"the cluster's znode; without it {DEFAULT_ROOT}"),
    Key(
        "timeoutSeconds", positive, 60, "seconds to wait for a server's answer before a task fails"
    ),
    *tls_keys("tls."),
)


def option_values(keys: Iterable[Key], given: Mapping[str, str], what: str) -> dict[str, Any]:
    """Return a value for each of ``keys``. Their names are compared without regard to case.

    ``what`` is what has the options, such as "the waltz source". Raises OptionError.
    """
    keys = tuple(keys)
    known = {key.name.lower(): key for key in keys}
    values = {key.name: key.default for key in keys}
    for name, raw in given.items():
        if name.lower() in _OF_SPARK:
            continue
        key = known.get(name.lower())
        if key is None:
            near = difflib.get_close_matches(name.lower(), known, n=1)
            hint = f"; did you mean {known[near[0]].name}?" if near else ""
            raise OptionError(f"{what} has no option {name}{hint}")
        try:
            values[key.name] = key.parse(raw)
        except ValueError as problem:
            raise OptionError(f"the option {key.name} is {raw!r}: {problem}") from None
    return values


def cluster_options(values: Mapping[str, Any], given: Mapping[str, str]) -> ClusterOptions:
    """Return the part of ``values`` that names the cluster. Raises OptionError."""
    cluster_file, zookeeper = values["cluster"], values["zookeeper"]
    if (cluster_file is None) == (zookeeper is None):
        raise OptionError(
            "set either the option zookeeper (host:port, with root), or cluster (the path of a "
            "local cluster's cluster.json)"
        )
    any_tls = any(name.lower().startswith("tls.") for name in given)
    return ClusterOptions(
        cluster_file=cluster_file,
        zookeeper=zookeeper,
        root=values["root"],
        tls=tls_config(values, "tls.") if any_tls else None,
        timeout_seconds=values["timeoutSeconds"],
    )
