"""The metrics of a process: declared once, shown to Prometheus and in JSON. Touches nothing.

Each metric declares the function that reads it, its name in Prometheus and its name in the JSON of
0.13.2. The page of the documentation that lists the metrics is generated from these declarations.
`ProcessMetrics` is a collector of prometheus_client: it reads plain counters when it is scraped, so
that no append pays for a metric.
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
_FORMS = ("text/plain", "application/openmetrics-text")

T = TypeVar("T")
P = TypeVar("P")
Q = TypeVar("Q")


class Kind(StrEnum):
    """The types of metrics of Prometheus that are used."""

    GAUGE = "gauge"
    COUNTER = "counter"
    HISTOGRAM = "histogram"


@dataclass(frozen=True, slots=True)
class Source(Generic[T]):
    """A value: its name and kind in JSON, how it is read, and its label within its family."""

    name: str
    kind: JsonKind
    read: Callable[[T], Any]
    label: str = ""


@dataclass(frozen=True, slots=True)
class Family(Generic[T]):
    """A metric of Prometheus. With a ``label_name`` it has one time series for each source.

    ``number`` turns a value as JSON has it into the value that Prometheus gets.
    """

    name: str
    kind: Kind
    meaning: str
    sources: tuple[Source[T], ...]
    label_name: str = ""
    number: Callable[[Any], float] = float


@dataclass(frozen=True, slots=True)
class Declared(Generic[P, Q]):
    """All metrics of one kind of process, read from a ``P``, and of its partitions, from ``Q``.

    ``group`` is the process's group in JSON; those of its partitions are ``GROUP.partition-N``.
    ``info`` is a metric that is always 1, whose labels identify the process. ``json_only`` has the
    values that Prometheus does not get, with their meanings.
    """

    group: str
    info: str
    info_labels: Mapping[str, Source[P]]
    process: tuple[Family[P], ...]
    partition: tuple[Family[Q], ...]
    json_only: Mapping[Source[P], str]


def value(name: str, read: Callable[[T], Any], label: str = "") -> Source[T]:
    """Return a source that is a gauge in JSON."""
    return Source(name, JsonKind.GAUGE, read, label)


def gauge(
    name: str,
    meaning: str,
    json: str,
    read: Callable[[T], Any],
    number: Callable[[Any], float] = float,
) -> Family[T]:
    """Return a metric that goes up and down; a value None is not shown to Prometheus."""
    return Family(name, Kind.GAUGE, meaning, (value(json, read),), number=number)


def counter(
    name: str,
    meaning: str,
    json: str,
    read: Callable[[T], int],
    kind: JsonKind = JsonKind.METER,
) -> Family[T]:
    """Return a metric that only grows."""
    return Family(name, Kind.COUNTER, meaning, (Source(json, kind, read),))


def histogram(
    name: str,
    meaning: str,
    json: str,
    read: Callable[[T], Timer],
) -> Family[T]:
    """Return a metric of durations."""
    return Family(name, Kind.HISTOGRAM, meaning, (Source(json, JsonKind.TIMER, read),))


def certificate_left(name: str, read: Callable[[T], float | None]) -> Family[T]:
    """Return the metric of the time until a process's certificate expires, read in days."""
    return gauge(
        name,
        "seconds until its certificate expires, in JSON days; missing without a certificate",
        "tls-certificate-days-left",
        read,
        lambda days: days * _SECONDS_A_DAY,
    )


class ProcessMetrics(Collector, Generic[P, Q]):
    """The metrics of a running process and its partitions.

    ``partitions`` returns the present partitions at each scrape. Without it, `add_partition` and
    `remove_partition` add and remove them.
    """

    def __init__(
        self,
        declared: Declared[P, Q],
        process: P,
        clock: Clock,
        partitions: Callable[[], Mapping[int, Q]] | None = None,
    ) -> None:
        self._declared = declared
        self._process = process
        self._json = JsonMetrics(clock)
        self._current = partitions
        self._partitions: dict[int, Q] = {}
        for source in (*declared.info_labels.values(), *declared.json_only):
            self._add(declared.group, source, process)
        for source in _sources(declared.process):
            self._add(declared.group, source, process)

    @property
    def json(self) -> JsonMetrics:
        """The same values in the JSON forms of 0.13.2."""
        self._update()
        return self._json

    def add_partition(self, number: int, partition: Q) -> None:
        """Show the metrics of a partition."""
        self._partitions[number] = partition
        for source in _sources(self._declared.partition):
            self._add(self._group(number), source, partition)

    def remove_partition(self, number: int) -> None:
        """Remove a partition."""
        self._partitions.pop(number, None)
        self._json.remove(self._group(number))

    def collect(self) -> list[Metric]:
        """Return all metrics, with their values as they are now."""
        self._update()
        labels = self._declared.info_labels
        read = {name: source.read(self._process) for name, source in labels.items()}
        info = GaugeMetricFamily(self._declared.info, _INFO_MEANING, labels=tuple(read))
        info.add_metric(["" if each is None else str(each) for each in read.values()], 1)
        shown: list[Metric] = [info]
        for family in self._declared.process:
            shown.append(metric := _metric(family, ()))
            _add_samples(metric, family, (), self._process)
        for each in self._declared.partition:
            shown.append(metric := _metric(each, (PARTITION,)))
            for number, partition in self._partitions.items():
                _add_samples(metric, each, (str(number),), partition)
        return shown

    def _update(self) -> None:
        if self._current is None:
            return
        current = dict(self._current())
        for number, partition in list(self._partitions.items()):
            if current.get(number) is not partition:
                self.remove_partition(number)
        for number in current.keys() - self._partitions.keys():
            self.add_partition(number, current[number])

    def _add(self, group: str, source: Source[T], subject: T) -> None:
        self._json.add(group, source.name, source.kind, partial(source.read, subject))

    def _group(self, number: int) -> str:
        return f"{self._declared.group}.partition-{number}"


def _sources(families: tuple[Family[T], ...]) -> Iterator[Source[T]]:
    return (source for family in families for source in family.sources)


_METRICS: Mapping[Kind, Any] = {
    Kind.GAUGE: GaugeMetricFamily,
    Kind.COUNTER: CounterMetricFamily,
    Kind.HISTOGRAM: HistogramMetricFamily,
}


def _metric(family: Family[T], labels: tuple[str, ...]) -> Any:
    names = (*labels, family.label_name) if family.label_name else labels
    return _METRICS[family.kind](family.name, family.meaning, labels=names)


def _add_samples(metric: Any, family: Family[T], labels: tuple[str, ...], subject: T) -> None:
    for source in family.sources:
        values = (*labels, source.label) if family.label_name else labels
        found = source.read(subject)
        if isinstance(found, Timer):
            metric.add_metric(values, found.cumulative(), sum_value=found.seconds)
        elif found is not None:
            metric.add_metric(values, family.number(found))


def accepts_exposition(accept: str) -> bool:
    """Whether the header of a request names a text form of Prometheus, and not JSON.

    Prometheus names its forms. A request for anything, or for JSON, gets the answer of 0.13.2.
    """
    return "application/json" not in accept and any(form in accept for form in _FORMS)


def exposition(metrics: list[Metric], accept: str) -> tuple[bytes, str]:
    """Return the text of Prometheus in the version that ``accept`` names, and its content type."""
    encode, content_type = choose_encoder(accept)
    return encode(_Collected(metrics)), content_type


@dataclass(frozen=True)
class _Collected(Collector):
    metrics: list[Metric]

    def collect(self) -> list[Metric]:
        return self.metrics
