"""Figures of a storage that only its metrics have: disk, scrubber, partitions. Pure.

The metrics come from the admin port (spec/wire.md section 7). The scrubber is the part of a storage
that reads all records, pass after pass, to find damaged ones. A storage of Waltz 0.13.2 has none of
these metrics.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

_PREFIX = "waltz-storage."


@dataclass(frozen=True, slots=True)
class StorageFigures:
    """What a storage reports beside its replicas.

    Where the storage has no value, a number is None and a mapping is empty.
    ``scrub_progress`` is the part of the present pass that the scrubber has done, from 0 to 1;
    ``scrub_passes`` is the number of its complete passes.
    ``refused`` has, by partition, why the storage cannot serve the partition. ``differing`` has, by
    partition, a text that names the transaction that the storage found to differ between replicas.
    """

    disk_free_bytes: int | None = None
    disk_size_bytes: int | None = None
    scrub_progress: float | None = None
    scrub_passes: int | None = None
    refused: Mapping[int, str] = field(default_factory=dict)
    differing: Mapping[int, str] = field(default_factory=dict)


def storage_figures(metrics: Mapping[str, Any]) -> StorageFigures:
    """Return the figures in the metrics of a storage.

    ``metrics`` are in the bean form: the JSON of the admin port (spec/behaviour.md section 13).
    """
    return StorageFigures(
        disk_free_bytes=whole_number(gauge_value(metrics, "disk-free-bytes")),
        disk_size_bytes=whole_number(gauge_value(metrics, "disk-size-bytes")),
        scrub_progress=_number(gauge_value(metrics, "scrub-progress")),
        scrub_passes=whole_number(gauge_value(metrics, "scrub-passes")),
        refused=_refused(gauge_value(metrics, "refused-partitions")),
        differing=_texts(gauge_value(metrics, "differing-partitions")),
    )


def gauge_value(metrics: Mapping[str, Any], name: str) -> Any:
    """Return the value of one metric, None if the storage does not have the metric."""
    gauges = metrics.get("gauges")
    gauge = gauges.get(_PREFIX + name) if isinstance(gauges, Mapping) else None
    return gauge.get("value") if isinstance(gauge, Mapping) else None


def _number(value: Any) -> float | None:
    """Return the value of a metric, None if it is no number that fits into a finite float."""
    try:
        return value if isinstance(value, int | float) and math.isfinite(value) else None
    except OverflowError:
        # JSON has integers of any size, and `math.isfinite` converts them to a float.
        return None


def whole_number(value: Any) -> int | None:
    """Return the value of a metric as an integer, None where `_number` returns None."""
    number = _number(value)
    return int(number) if number is not None else None


def _texts(value: Any) -> dict[int, str]:
    """Return the texts in ``value``, by partition."""
    return {partition: str(text) for partition, text in _by_partition(value)}


def _refused(value: Any) -> dict[int, str]:
    """Return why each refused partition in ``value`` is refused."""
    return {
        partition: str(report.get("reason")) if isinstance(report, Mapping) else str(report)
        for partition, report in _by_partition(value)
    }


def _by_partition(value: Any) -> list[tuple[int, Any]]:
    """Return the entries of ``value`` whose keys are partitions; none if it is no mapping."""
    if not isinstance(value, Mapping):
        return []
    return [(int(key), entry) for key, entry in value.items() if str(key).isdecimal()]
