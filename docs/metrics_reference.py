"""The page of all metrics of servers, storages and the operator, made of their catalogues. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from waltz.runtime.exposition import PARTITION, Catalogue, Family, Kind
from waltz_operator.shell.metrics import HELP as OPERATOR
from waltz_server.core.metrics import CATALOGUE as SERVER
from waltz_storage.core.metrics import CATALOGUE as STORAGE

_ABOUT = """\
`GET /metrics` on a process's HTTP port answers in two forms. Prometheus, which names its text in \
the header `Accept`, gets that text; everybody else gets JSON in the form of Waltz 0.13.2:

```text
curl -H 'Accept: text/plain' http://HOST:PORT/metrics
curl http://HOST:PORT/metrics
```

The tables give a metric's name in both. What Prometheus calls a histogram has buckets for \
`histogram_quantile`; the same in JSON has rates and percentiles of the most recent durations. In \
JSON the names stand behind the group that is named above a table. What to watch, and when to be \
alarmed, is on [another page](monitoring.md)."""

_HEAD = ("| Prometheus | Kind | JSON | Meaning |", "|---|---|---|---|")


def metrics_page(made: str) -> str:
    """Return the page; ``made`` is the remark that it is generated."""
    lines = ["# Metrics", "", made, "", _ABOUT, ""]
    for title, catalogue in (("Server", SERVER), ("Storage", STORAGE)):
        lines += [f"## {title}", "", *_process(catalogue), ""]
        lines += [f"### Each partition of a {title.lower()}", "", *_partition(catalogue), ""]
    lines += ["## Operator", "", *_operator()]
    return "\n".join(lines).rstrip() + "\n"


def _operator() -> Iterator[str]:
    yield "Only as Prometheus' text."
    yield ""
    yield from ("| Prometheus | Kind | Meaning |", "|---|---|---|")
    for name, meaning in OPERATOR.items():
        kind = Kind.COUNTER if name.endswith("_total") else Kind.GAUGE
        yield f"| `{name}` | {kind} | {meaning} |"


def _process(catalogue: Catalogue) -> Iterator[str]:
    yield f"In JSON behind `{catalogue.group}.`"
    yield ""
    yield from _HEAD
    info = catalogue.info
    labels = ", ".join(f"`{label}`" for label in info.labels)
    sources = ", ".join(f"`{source}`" for source in info.labels.values())
    yield f"| `{info.name}` | gauge | {sources} | always 1; {info.meaning}, in labels: {labels} |"
    yield from _rows(catalogue.process)
    for name, meaning in catalogue.not_shown.items():
        yield f"| – | | `{name}` | {meaning} |"


def _partition(catalogue: Catalogue) -> Iterator[str]:
    yield (
        f"In JSON behind `{catalogue.group}.partition-<n>.`; for Prometheus with the label "
        f"`{PARTITION}`."
    )
    yield ""
    yield from _HEAD
    yield from _rows(catalogue.partition)


def _rows(families: Iterable[Family]) -> Iterator[str]:
    for family in families:
        sources = ", ".join(f"`{source.name}`" for source in family.sources)
        labels = {name for source in family.sources for name, _ in source.labels}
        more = f"; by label {', '.join(f'`{label}`' for label in sorted(labels))}" if labels else ""
        yield f"| `{family.name}` | {family.kind} | {sources} | {family.meaning}{more} |"
