"""The metrics of a process: each is declared once, and shown to Prometheus and in JSON.

Touches nothing. The declaration of a metric has the function that reads the metric, its name in
Prometheus, and its name in the JSON of Waltz 0.13.2. The documentation's page of metrics is
generated from these declarations.

A process counts in plain attributes of its own objects. `ProcessMetrics`, a collector of
prometheus_client, reads them only when the metrics are requested. So an append does no more than
change these attributes.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from enum import StrEnum
from functools import partial
from typing import Any, Generic, TypeVar

from prometheus_client.exposition import choose_encoder
from prometheus_client.metrics_core import (
    CounterMetricFamily,
    GaugeMetricFamily,
    HistogramMetricFamily,
    Metric,
)
from prometheus_client.registry import Collector

from waltz.runtime.core.json_metrics import Clock, JsonKind, JsonMetrics
from waltz.runtime.core.timer import Timer

PARTITION = "partition"
"""The label of the metrics of each partition."""

_SECONDS_A_DAY = 86_400
_INFO_MEANING = "always 1; the labels identify the process"
_PROMETHEUS_MEDIA_TYPES = ("text/plain", "application/openmetrics-text")

SubjectT = TypeVar("SubjectT")
"""The type of the object from which a metric is read: a process, or one of its partitions."""
ProcessT = TypeVar("ProcessT")
PartitionT = TypeVar("PartitionT")


class Kind(StrEnum):
    """The types of Prometheus metrics that processes use."""

    GAUGE = "gauge"
    COUNTER = "counter"
    HISTOGRAM = "histogram"


@dataclass(frozen=True, slots=True)
class MetricSource(Generic[SubjectT]):
    """One value of a metric. ``read`` returns the present value for a subject.

    ``name`` and ``kind`` are those in JSON. In Prometheus, ``label`` distinguishes the values of
    one `MetricFamily`.
    """

    name: str
    kind: JsonKind
    read: Callable[[SubjectT], Any]
    label: str = ""


@dataclass(frozen=True, slots=True)
class MetricFamily(Generic[SubjectT]):
    """A metric of Prometheus, and the sources of its values.

    ``name``, ``kind`` and ``meaning`` are those in Prometheus. A family with more than one source
    has a ``label_name``: the name of the label that distinguishes the values. ``to_prometheus``
    converts a value in JSON to the value for Prometheus.
    """

    name: str
    kind: Kind
    meaning: str
    sources: tuple[MetricSource[SubjectT], ...]
    label_name: str = ""
    to_prometheus: Callable[[Any], float] = float


@dataclass(frozen=True, slots=True)
class MetricDeclarations(Generic[ProcessT, PartitionT]):
    """All metrics of one kind of process, and of the partitions of such a process.

    The metrics in ``process`` are read from an object of the process, those in ``partition`` from
    one object for each partition. ``group`` is the group of the process in JSON; partition N has
    the group ``GROUP.partition-N``. ``info`` is the name of a metric of Prometheus that is always
    1; its labels ``info_labels`` identify the process. ``json_only`` has values that only JSON
    shows, with their meanings.
    """

    group: str
    info: str
    info_labels: Mapping[str, MetricSource[ProcessT]]
    process: tuple[MetricFamily[ProcessT], ...]
    partition: tuple[MetricFamily[PartitionT], ...]
    json_only: Mapping[MetricSource[ProcessT], str]


def gauge_source(
    name: str, read: Callable[[SubjectT], Any], label: str = ""
) -> MetricSource[SubjectT]:
    """Return a source that is a gauge in JSON."""
    return MetricSource(name, JsonKind.GAUGE, read, label)


def gauge(
    name: str,
    meaning: str,
    json: str,
    read: Callable[[SubjectT], Any],
    to_prometheus: Callable[[Any], float] = float,
) -> MetricFamily[SubjectT]:
    """Return a metric that may grow and shrink. Prometheus does not get a value None.

    ``name`` is the name for Prometheus, ``json`` the name in JSON. ``to_prometheus`` converts a
    value in JSON to the value for Prometheus.
    """
    return MetricFamily(
        name, Kind.GAUGE, meaning, (gauge_source(json, read),), to_prometheus=to_prometheus
    )


def counter(
    name: str,
    meaning: str,
    json: str,
    read: Callable[[SubjectT], int],
    kind: JsonKind = JsonKind.METER,
) -> MetricFamily[SubjectT]:
    """Return a metric that only grows. ``kind`` is its kind in JSON; see `gauge`."""
    return MetricFamily(name, Kind.COUNTER, meaning, (MetricSource(json, kind, read),))


def histogram(
    name: str,
    meaning: str,
    json: str,
    read: Callable[[SubjectT], Timer],
) -> MetricFamily[SubjectT]:
    """Return a metric of durations in seconds; see `gauge`.

    ``read`` returns the same `Timer` at each call.
    """
    return MetricFamily(name, Kind.HISTOGRAM, meaning, (MetricSource(json, JsonKind.TIMER, read),))


def certificate_left(name: str, read: Callable[[SubjectT], float | None]) -> MetricFamily[SubjectT]:
    """Return the metric of the time until the process's certificate expires.

    ``read`` returns days; Prometheus gets seconds.
    """
    return gauge(
        name,
        "seconds until its TLS certificate expires; days in JSON; missing without a certificate",
        "tls-certificate-days-left",
        read,
        to_prometheus=lambda days: days * _SECONDS_A_DAY,
    )


class ProcessMetrics(Collector, Generic[ProcessT, PartitionT]):
    """The metrics of a running process and its partitions.

    There are two ways to keep the partitions up to date. If ``partitions`` is set, it is called
    whenever the metrics are read, and returns the present partitions. Otherwise the process calls
    `add_partition` and `remove_partition`.
    """

    def __init__(
        self,
        declarations: MetricDeclarations[ProcessT, PartitionT],
        process: ProcessT,
        clock: Clock,
        partitions: Callable[[], Mapping[int, PartitionT]] | None = None,
    ) -> None:
        self._declarations = declarations
        self._process = process
        self._json = JsonMetrics(clock)
        self._read_partitions = partitions
        self._partitions: dict[int, PartitionT] = {}
        for source in (*declarations.info_labels.values(), *declarations.json_only):
            self._add(declarations.group, source, process)
        for source in _sources(declarations.process):
            self._add(declarations.group, source, process)

    @property
    def json(self) -> JsonMetrics:
        """The same metrics, with the present partitions, in the JSON forms of 0.13.2."""
        self._update()
        return self._json

    def add_partition(self, number: int, partition: PartitionT) -> None:
        """Add the metrics of a partition."""
        self._partitions[number] = partition
        for source in _sources(self._declarations.partition):
            self._add(self._group(number), source, partition)

    def remove_partition(self, number: int) -> None:
        """Remove the metrics of a partition."""
        self._partitions.pop(number, None)
        self._json.remove(self._group(number))

    def collect(self) -> list[Metric]:
        """Return all metrics with their present values, for Prometheus."""
        self._update()
        labels = self._declarations.info_labels
        values = [source.read(self._process) for source in labels.values()]
        info = GaugeMetricFamily(self._declarations.info, _INFO_MEANING, labels=tuple(labels))
        info.add_metric(["" if value is None else str(value) for value in values], 1)
        metrics: list[Metric] = [info]
        for family in self._declarations.process:
            metric = _metric(family, label_names=())
            metrics.append(metric)
            _add_samples(metric, family, label_values=(), subject=self._process)
        for partition_family in self._declarations.partition:
            metric = _metric(partition_family, label_names=(PARTITION,))
            metrics.append(metric)
            for number, partition in self._partitions.items():
                _add_samples(metric, partition_family, (str(number),), partition)
        return metrics

    def _update(self) -> None:
        """Add and remove partitions, so that the metrics have those that ``partitions`` returns."""
        if self._read_partitions is None:
            return
        current = dict(self._read_partitions())
        for number, partition in list(self._partitions.items()):
            if current.get(number) is not partition:
                self.remove_partition(number)
        for number in current.keys() - self._partitions.keys():
            self.add_partition(number, current[number])

    def _add(self, group: str, source: MetricSource[SubjectT], subject: SubjectT) -> None:
        """Add one value to the metrics in JSON."""
        self._json.add(group, source.name, source.kind, partial(source.read, subject))

    def _group(self, number: int) -> str:
        return f"{self._declarations.group}.partition-{number}"


def _sources(families: tuple[MetricFamily[SubjectT], ...]) -> Iterator[MetricSource[SubjectT]]:
    return (source for family in families for source in family.sources)


_METRICS: Mapping[Kind, Any] = {
    Kind.GAUGE: GaugeMetricFamily,
    Kind.COUNTER: CounterMetricFamily,
    Kind.HISTOGRAM: HistogramMetricFamily,
}


def _metric(family: MetricFamily[SubjectT], label_names: tuple[str, ...]) -> Any:
    """Return the metric of Prometheus for a family, without values."""
    names = (*label_names, family.label_name) if family.label_name else label_names
    return _METRICS[family.kind](family.name, family.meaning, labels=names)


def _add_samples(
    metric: Any, family: MetricFamily[SubjectT], label_values: tuple[str, ...], subject: SubjectT
) -> None:
    """Add the present values of a family, read from ``subject``, to a metric of Prometheus."""
    for source in family.sources:
        labels = (*label_values, source.label) if family.label_name else label_values
        value = source.read(subject)
        if isinstance(value, Timer):
            metric.add_metric(labels, value.cumulative_counts(), sum_value=value.seconds)
        elif value is not None:
            metric.add_metric(labels, family.to_prometheus(value))


def accepts_exposition(accept: str) -> bool:
    """Return whether a request gets the metrics in a format of Prometheus.

    ``accept`` is the Accept header of the request. It must name such a format, and must not name
    JSON. Any other request, also one that accepts everything, gets the JSON of 0.13.2.
    """
    return "application/json" not in accept and any(
        media_type in accept for media_type in _PROMETHEUS_MEDIA_TYPES
    )


def exposition(metrics: list[Metric], accept: str) -> tuple[bytes, str]:
    """Return ``metrics`` in the Prometheus format that ``accept`` names, and the content type."""
    encode, content_type = choose_encoder(accept)
    return encode(_CollectedMetrics(metrics)), content_type


@dataclass(frozen=True)
class _CollectedMetrics(Collector):
    """Metrics that are already collected, as a collector: the encoder takes only collectors."""

    metrics: list[Metric]

    def collect(self) -> list[Metric]:
        return self.metrics
