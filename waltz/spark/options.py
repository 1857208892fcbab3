"""The options of ``spark.read.format("waltz")``: names, defaults, what their texts mean. Pure."""

from __future__ import annotations

import difflib
import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from enum import Enum
from pathlib import Path
from typing import Any

from waltz.cluster_file import DEFAULT_ROOT
from waltz.config import Key, positive, text, tls_config, tls_keys
from waltz.net import TlsConfig
from waltz.ranges import parse_partitions


class OptionError(ValueError):
    """An option cannot be used; the text names it and says what is wanted."""


class Edge(Enum):
    """An end of a log."""

    EARLIEST = "earliest"
    LATEST = "latest"


@dataclass(frozen=True, slots=True)
class Positions:
    """Where to begin or to stop, by partition; ``otherwise`` is for those not in ``by_partition``.

    A number is a transaction id: the first to be read, or the first not to be read.
    """

    otherwise: Edge
    by_partition: Mapping[int, int | Edge] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class ReadOptions:
    """What is to be read, and how.

    The cluster is named by ``cluster_file``, or by ``zookeeper`` and ``root``. ``tls`` is None if
    nothing was said about it, and ``partitions`` is None for all of them. ``timeout_seconds`` is
    how long servers may leave the reader without an answer.
    """

    cluster_file: Path | None
    zookeeper: str | None
    root: str | None
    tls: TlsConfig | None
    partitions: tuple[int, ...] | None
    start: Positions
    end: Positions
    rows_per_task: int
    timeout_seconds: int


def parse_options(given: Mapping[str, str]) -> ReadOptions:
    """Return what the options say. Their names are compared without regard to case.

    Raises OptionError.
    """
    values = _values(given)
    cluster_file, zookeeper = values["cluster"], values["zookeeper"]
    if (cluster_file is None) == (zookeeper is None):
        raise OptionError(
            "set either the option zookeeper (host:port, with root), or cluster (the path of a "
            "local cluster's cluster.json)"
        )
    any_tls = any(name.lower().startswith("tls.") for name in given)
    return ReadOptions(
        cluster_file=cluster_file,
        zookeeper=zookeeper,
        root=values["root"],
        tls=tls_config(values, "tls.") if any_tls else None,
        partitions=values["partitions"],
        start=values["startingPositions"],
        end=values["endingPositions"],
        rows_per_task=values["rowsPerTask"],
        timeout_seconds=values["timeoutSeconds"],
    )


def _values(given: Mapping[str, str]) -> dict[str, Any]:
    known = {key.name.lower(): key for key in _KEYS}
    values = {key.name: key.default for key in _KEYS}
    for name, raw in given.items():
        key = known.get(name.lower())
        if key is None:
            near = difflib.get_close_matches(name.lower(), known, n=1)
            hint = f"; did you mean {known[near[0]].name}?" if near else ""
            raise OptionError(f"the waltz source has no option {name}{hint}")
        try:
            values[key.name] = key.parse(raw)
        except ValueError as problem:
            raise OptionError(f"the option {key.name} is {raw!r}: {problem}") from None
    return values


def _positions(otherwise: Edge) -> Callable[[str], Positions]:
    def parse(given: str) -> Positions:
        plain = given.strip().lower()
        if plain in _EDGES:
            return Positions(_EDGES[plain])
        wanted = 'earliest, latest, or JSON like {"0": 17, "1": "latest"} is wanted'
        try:
            by_partition = json.loads(given)
        except ValueError:
            raise ValueError(wanted) from None
        if not isinstance(by_partition, dict):
            raise ValueError(wanted)
        return Positions(
            otherwise, {_partition(p): _position(at) for p, at in by_partition.items()}
        )

    return parse


def _partition(name: str) -> int:
    if not (name.isascii() and name.isdigit()):
        raise ValueError(f"{name!r} is not the number of a partition")
    return int(name)


def _position(at: Any) -> int | Edge:
    if isinstance(at, str) and at.lower() in _EDGES:
        return _EDGES[at.lower()]
    if isinstance(at, bool) or not isinstance(at, int) or at < 0:
        raise ValueError(f"{at!r} is neither a transaction id, earliest nor latest")
    return at


_EDGES = {edge.value: edge for edge in Edge}

_KEYS = (
    Key("cluster", Path, None, "cluster.json of a local cluster"),
    Key("zookeeper", text, None, "host:port of ZooKeeper, comma-separated"),
    Key("root", text, None, f"the cluster's znode; without it {DEFAULT_ROOT}"),
    Key("partitions", parse_partitions, None, "such as 0-6,7; without it all"),
    Key("startingPositions", _positions(Edge.EARLIEST), Positions(Edge.EARLIEST), "first ids"),
    Key("endingPositions", _positions(Edge.LATEST), Positions(Edge.LATEST), "ids to stop before"),
    Key("rowsPerTask", positive, 100_000, "the most transactions that one task reads"),
    Key("timeoutSeconds", positive, 60, "how long servers may leave a task without an answer"),
    *tls_keys("tls."),
)
