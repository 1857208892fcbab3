"""The options of ``write`` and ``writeStream``. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from waltz.runtime.core.value_types import text
from waltz.spark.core.option_values import (
    CLUSTER_OPTIONS,
    ClusterOptions,
    Option,
    cluster_options,
    option_values,
)


@dataclass(frozen=True, slots=True)
class WriteOptions:
    """The parsed options of a write.

    ``write_id`` names a write that may be repeated: a repetition appends only the rows that are not
    in the log. If it is None, ``writeStream`` uses the id of its query instead, so that its
    micro-batches can be repeated. A ``write`` without ``write_id`` appends all rows again when it
    is repeated.
    """

    cluster: ClusterOptions
    write_id: str | None


def parse_write_options(given: Mapping[str, str]) -> WriteOptions:
    """Parse the options. Raises OptionError."""
    values = option_values(_OPTIONS, given, "the waltz sink")
    return WriteOptions(cluster_options(values, given), values["writeId"])


_OPTIONS = (
    *CLUSTER_OPTIONS,
    Option("writeId", text, None, "the name of a write, by which its repetition finds its rows"),
)
