"""The options of ``read`` and ``readStream``: names, defaults, values. Pure.

`option_values` has the options that readers and writers share; `write_options` those of writers.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from enum import Enum
from typing import Any
from uuid import UUID

from waltz.protocol.notation import parse_partitions
from waltz.runtime.core.value_types import one_of, positive
from waltz.spark.core.option_values import (
    CLUSTER_OPTIONS,
    ClusterOptions,
    Option,
    OptionError,
    cluster_options,
    option_values,
)
from waltz.spark.core.payload_parsers import check_avro_schema

CLUSTER_KEY = "clusterKey"
"""The name of the cluster's key in JSON with positions. All other names there are partitions."""


class Edge(Enum):
    """The beginning of a log, or its present end."""

    EARLIEST = "earliest"
    LATEST = "latest"


@dataclass(frozen=True, slots=True)
class Positions:
    """Where the reading of each partition begins, or where it ends.

    A number is a transaction id: the first id to read, or, as an end, the first id not to read.
    ``otherwise`` is the position of the partitions that ``by_partition`` does not have.
    ``cluster_key`` is the key of the cluster that the positions are of, None if they have none.
    """

    otherwise: Edge
    by_partition: Mapping[int, int | Edge] = field(default_factory=dict)
    cluster_key: UUID | None = None


class Mode(Enum):
    """The treatment of a row whose data cannot be decoded."""

    PERMISSIVE = "permissive"
    """The decoded columns of the row are null."""
    DROP = "drop"
    """The row is left out."""
    FAIL = "fail"
    """The read fails."""


@dataclass(frozen=True, slots=True)
class ReadOptions:
    """The parsed options of a read.

    If ``partitions`` is None, all partitions are read. A task reads at most ``rows_per_task`` rows
    and about ``bytes_per_task`` bytes. A micro-batch reads at most ``max_rows`` rows and about
    ``max_bytes`` bytes. A limit that is None does not apply. With ``skip_missing``, a position
    beyond the log's end is replaced by the end; without it, such a position is an error. With
    ``from_replicas``, records are read from storages, otherwise from servers. ``decode`` is the
    format of ``data``: binary, utf8, json, arrow or avro. ``avro_schema``, as JSON, is the schema
    with which Avro data was written. ``mode`` is the treatment of rows that cannot be decoded.
    """

    cluster: ClusterOptions
    partitions: tuple[int, ...] | None
    start: Positions
    end: Positions
    rows_per_task: int
    bytes_per_task: int | None
    max_rows: int | None
    max_bytes: int | None
    skip_missing: bool
    from_replicas: bool
    decode: str
    avro_schema: str | None
    mode: Mode


def parse_options(given: Mapping[str, str]) -> ReadOptions:
    """Parse the options. Their names are compared without regard to case.

    Raises OptionError.
    """
    values = option_values(_OPTIONS, given, "the waltz source")
    return ReadOptions(
        cluster=cluster_options(values, given),
        partitions=values["partitions"],
        start=values["startingPositions"],
        end=values["endingPositions"],
        rows_per_task=values["rowsPerTask"],
        bytes_per_task=values["bytesPerTask"],
        max_rows=values["maxRowsPerTrigger"],
        max_bytes=values["maxBytesPerTrigger"],
        skip_missing=values["missingPositions"] == "continue",
        from_replicas=values["readFrom"] == "replicas",
        decode=values["decode"],
        avro_schema=values["avroSchema"],
        mode=Mode(values["mode"]),
    )


def cluster_key_in(positions: Mapping[str, object]) -> UUID | None:
    """Return the key that decoded JSON with positions has; None if it has none.

    Raises ValueError if the key is malformed.
    """
    if CLUSTER_KEY not in positions:
        return None
    given = positions[CLUSTER_KEY]
    try:
        return UUID(str(given))
    except ValueError:
        raise ValueError(f"{given!r} is not the key of a cluster") from None


def check_streaming(options: ReadOptions) -> None:
    """Raise OptionError for an option that is for batch reads only."""
    if options.end != Positions(Edge.LATEST):
        raise OptionError(
            "endingPositions is for spark.read: a stream has no end; remove it, and use "
            "trigger(availableNow=True) to stop at the logs' present ends"
        )


def _positions_parser(otherwise: Edge) -> Callable[[str], Positions]:
    """Return the parser of an option with positions; see `Positions.otherwise`."""

    def parse(given: str) -> Positions:
        edge = _EDGES.get(given.strip().lower())
        if edge is not None:
            return Positions(edge)
        remedy = 'it must be earliest, latest, or JSON like {"0": 17, "1": "latest"}'
        try:
            by_partition = json.loads(given)
        except (ValueError, RecursionError):
            raise ValueError(remedy) from None
        if not isinstance(by_partition, dict):
            raise ValueError(remedy)
        cluster_key = cluster_key_in(by_partition)
        return Positions(
            otherwise,
            {
                _partition(name): _position(at)
                for name, at in by_partition.items()
                if name != CLUSTER_KEY
            },
            cluster_key,
        )

    return parse


def _avro_schema(given: str) -> str:
    """Return ``given``. Raises ValueError if it is not the schema of an Avro record."""
    check_avro_schema(given)
    return given


def _partition(name: str) -> int:
    """Return the partition that a name in JSON means. Raises ValueError."""
    if not _is_digits(name):
        raise ValueError(f"{name!r} is not the number of a partition")
    return int(name)


def _position(at: Any) -> int | Edge:
    """Return the position that a value in JSON means: a transaction id, or an `Edge`.

    The id may also be text with digits, as in the offsets of a checkpoint (`core.offsets`). Raises
    ValueError.
    """
    if isinstance(at, str) and at.lower() in _EDGES:
        return _EDGES[at.lower()]
    if isinstance(at, str) and _is_digits(at):
        return int(at)
    if isinstance(at, bool) or not isinstance(at, int) or at < 0:
        raise ValueError(f"{at!r} is neither a transaction id, earliest nor latest")
    return at


def _is_digits(text: str) -> bool:
    return text.isascii() and text.isdigit()


_EDGES = {edge.value: edge for edge in Edge}

_OPTIONS = (
    *CLUSTER_OPTIONS,
    Option(
        "partitions", parse_partitions, None, "the partitions to read, such as 0-6,7; default all"
    ),
    Option(
        "startingPositions",
        _positions_parser(Edge.EARLIEST),
        Positions(Edge.EARLIEST),
        "the first transaction id to read, for each partition",
    ),
    Option(
        "endingPositions",
        _positions_parser(Edge.LATEST),
        Positions(Edge.LATEST),
        "the first transaction id not to read, for each partition",
    ),
    Option("rowsPerTask", positive, 500_000, "the most transactions that one task reads"),
    Option(
        "bytesPerTask", positive, None, "about the most bytes that one task reads; default no limit"
    ),
    Option("maxRowsPerTrigger", positive, None, "the most rows of a micro-batch; default no limit"),
    Option(
        "maxBytesPerTrigger",
        positive,
        None,
        "about the most bytes of a micro-batch; default no limit",
    ),
    Option(
        "missingPositions",
        one_of("fail", "continue"),
        "fail",
        "fail, or continue at the log's end, if a position is beyond the end",
    ),
    Option(
        "readFrom",
        one_of("servers", "replicas"),
        "servers",
        "read records from servers, or from the replicas on storages",
    ),
    Option(
        "decode",
        one_of("binary", "utf8", "json", "arrow", "avro"),
        "binary",
        "the format of the column data",
    ),
    Option("avroSchema", _avro_schema, None, "the schema that Avro data was written with, as JSON"),
    Option(
        "mode",
        one_of(*(mode.value for mode in Mode)),
        "permissive",
        "the treatment of rows whose data cannot be decoded",
    ),
)
