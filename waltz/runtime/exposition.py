"""A process's metrics in the text that Prometheus reads. Touches nothing.

A `Catalogue` says which of a registry's readings are shown, under which names, and what they mean;
the page of the documentation that lists them is made of it. Names follow Prometheus' own customs:
base units, and ``_total`` behind what only grows.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from enum import StrEnum
from itertools import accumulate
from typing import Any

from prometheus_client.exposition import choose_encoder
from prometheus_client.metrics_core import Metric
from prometheus_client.registry import Collector

from waltz.runtime.metrics import BUCKETS_SECONDS, Count, Durations, Level, Reading

PARTITION = "partition"
"""The label of what is measured for each partition."""

_SECONDS_A_DAY = 86_400
_FORMS = ("text/plain", "application/openmetrics-text")
_BOUNDS = (*(str(bound) for bound in BUCKETS_SECONDS), "+Inf")

Labels = tuple[tuple[str, str], ...]


class Kind(StrEnum):
    """How Prometheus treats a metric."""

    GAUGE = "gauge"
    COUNTER = "counter"
    HISTOGRAM = "histogram"


@dataclass(frozen=True, slots=True)
class Source:
    """A reading, the labels that tell it from others of its family, and its value as a number."""

    name: str
    labels: Labels = ()
    number: Callable[[Any], float] = float


@dataclass(frozen=True, slots=True)
class Family:
    """One metric as Prometheus knows it, and what it is made of."""

    name: str
    kind: Kind
    meaning: str
    sources: tuple[Source, ...]


@dataclass(frozen=True, slots=True)
class Info:
    """A metric that is always 1; its labels, made of these readings, say who the process is."""

    name: str
    meaning: str
    labels: Mapping[str, str]


@dataclass(frozen=True, slots=True)
class Catalogue:
    """All that one kind of process shows.

    ``group`` is the registry's group of the process itself; those of its partitions are called
    ``GROUP.partition-N``. ``not_shown`` are readings that only the JSON form has, and what they
    mean.
    """

    group: str
    info: Info
    process: tuple[Family, ...]
    partition: tuple[Family, ...]
    not_shown: Mapping[str, str]


def gauge(name: str, source: str, meaning: str, number: Callable[[Any], float] = float) -> Family:
    """Return a metric that goes up and down."""
    return Family(name, Kind.GAUGE, meaning, (Source(source, (), number),))


def certificate_left(name: str) -> Family:
    """Return the metric of how long a process's certificate is still good."""
    return gauge(
        name,
        "tls-certificate-days-left",
        "how long its certificate is still good, in JSON in days; not there without one",
        lambda days: days * _SECONDS_A_DAY,
    )


def counter(name: str, source: str, meaning: str) -> Family:
    """Return a metric that only grows."""
    return Family(name, Kind.COUNTER, meaning, (Source(source),))


def histogram(name: str, source: str, meaning: str) -> Family:
    """Return a metric of how long things take."""
    return Family(name, Kind.HISTOGRAM, meaning, (Source(source),))


def is_asked_for(accept: str) -> bool:
    """Whether the header of a request wants Prometheus' text rather than JSON.

    Prometheus names its forms. What takes anything, or JSON, gets what Waltz 0.13.2 answers.
    """
    return "application/json" not in accept and any(form in accept for form in _FORMS)


def exposition(catalogue: Catalogue, readings: Iterable[Reading], accept: str) -> tuple[bytes, str]:
    """Return the text, and its content type, in the version that ``accept`` asks for."""
    encode, content_type = choose_encoder(accept)
    return encode(_Shown(metrics(catalogue, readings))), content_type


def metrics(catalogue: Catalogue, readings: Iterable[Reading]) -> list[Metric]:
    """Return the metrics that a catalogue makes of readings; one that is None is left out."""
    shown = _Showing(catalogue)
    for reading in readings:
        shown.add(reading)
    return shown.result()


@dataclass(frozen=True)
class _Shown(Collector):
    metrics: list[Metric]

    def collect(self) -> list[Metric]:
        return self.metrics


class _Showing:
    def __init__(self, catalogue: Catalogue) -> None:
        self._catalogue = catalogue
        self._families = [*catalogue.process, *catalogue.partition]
        self._metrics = {f.name: Metric(_stem(f), f.meaning, f.kind) for f in self._families}
        self._process = _by_source(catalogue.process)
        self._partition = _by_source(catalogue.partition)
        self._labels_by_source = {source: label for label, source in catalogue.info.labels.items()}
        self._who: dict[str, str] = dict.fromkeys(catalogue.info.labels, "")

    def add(self, reading: Reading) -> None:
        group = self._catalogue.group
        if reading.group != group:
            number = reading.group.removeprefix(f"{group}.partition-")
            self._show(self._partition, reading, ((PARTITION, number),))
        elif (label := self._labels_by_source.get(reading.name)) is not None:
            assert isinstance(reading.value, Level)
            self._who[label] = "" if reading.value.value is None else str(reading.value.value)
        else:
            self._show(self._process, reading, ())

    def result(self) -> list[Metric]:
        info = Metric(self._catalogue.info.name, self._catalogue.info.meaning, Kind.GAUGE)
        info.add_sample(info.name, self._who, 1)
        return [info, *self._metrics.values()]

    def _show(
        self,
        known: Mapping[str, tuple[Family, Source]],
        reading: Reading,
        labels: Labels,
    ) -> None:
        found = known.get(reading.name)
        if found is None:
            return
        family, source = found
        metric, labels = self._metrics[family.name], (*labels, *source.labels)
        match reading.value:
            case Level(value) | Count(value):
                if value is not None:
                    metric.add_sample(family.name, dict(labels), source.number(value))
            case Durations(buckets, seconds):
                _add_histogram(metric, dict(labels), buckets, seconds)


def _add_histogram(
    metric: Metric, labels: dict[str, str], buckets: tuple[int, ...], seconds: float
) -> None:
    up_to = tuple(accumulate(buckets))
    for bound, count in zip(_BOUNDS, up_to, strict=True):
        metric.add_sample(f"{metric.name}_bucket", labels | {"le": bound}, count)
    metric.add_sample(f"{metric.name}_count", labels, up_to[-1])
    metric.add_sample(f"{metric.name}_sum", labels, seconds)


def _stem(family: Family) -> str:
    """Return a family's name as the library wants it: of counters, without the end."""
    return family.name.removesuffix("_total") if family.kind is Kind.COUNTER else family.name


def _by_source(families: Iterable[Family]) -> dict[str, tuple[Family, Source]]:
    return {source.name: (family, source) for family in families for source in family.sources}
