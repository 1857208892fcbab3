"""Generate the page of all metrics of servers, storages and the operator. Touches nothing.

The names, kinds and meanings come from the declarations in the code of these processes.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

from waltz.runtime.metrics import PARTITION, Kind, MetricDeclarations, MetricFamily
from waltz_operator.shell.metrics import HELP as OPERATOR
from waltz_server.shell.metrics import METRICS as SERVER
from waltz_storage.shell.metrics import METRICS as STORAGE

_ABOUT = """\
`GET /metrics` on a process's HTTP port answers in two forms. A request whose header `Accept` \
names a text form of Prometheus gets that form; any other request gets the JSON of Waltz 0.13.2:

```text
curl -H 'Accept: text/plain' http://HOST:PORT/metrics
curl http://HOST:PORT/metrics
```

The tables have a metric's name in both forms. A histogram of Prometheus has buckets for \
`histogram_quantile`; in JSON it has rates and percentiles of the most recent durations. In JSON \
each name follows the group that is above the table. [Monitoring](monitoring.md) says which \
metrics to watch and when to alert."""

_HEAD = ("| Prometheus | Kind | JSON | Meaning |", "|---|---|---|---|")


def metrics_page(made: str) -> str:
    """Return the page; ``made`` is the comment that says how the page is made."""
    lines = ["# Metrics", "", made, "", _ABOUT, ""]
    for title, declarations in (("Server", SERVER), ("Storage", STORAGE)):
        lines += [f"## {title}", "", *_process(declarations), ""]
        lines += [f"### Each partition of a {title.lower()}", "", *_partition(declarations), ""]
    lines += ["## Operator", "", *_operator()]
    return "\n".join(lines).rstrip() + "\n"


def _operator() -> Iterator[str]:
    """Yield the text and the table about the operator's metrics."""
    yield "Only in the text form of Prometheus."
    yield ""
    yield from ("| Prometheus | Kind | Meaning |", "|---|---|---|")
    for name, meaning in OPERATOR.items():
        kind = Kind.COUNTER if name.endswith("_total") else Kind.GAUGE
        yield f"| `{name}` | {kind} | {meaning} |"


def _process(declarations: MetricDeclarations[Any, Any]) -> Iterator[str]:
    """Yield the text and the table about the metrics of a whole process."""
    yield f"In JSON each name follows `{declarations.group}.`"
    yield ""
    yield from _HEAD
    labels = ", ".join(f"`{label}`" for label in declarations.info_labels)
    sources = ", ".join(f"`{source.name}`" for source in declarations.info_labels.values())
    meaning = f"always 1; the labels identify the process: {labels}"
    yield f"| `{declarations.info}` | gauge | {sources} | {meaning} |"
    yield from _rows(declarations.process)
    for source, meaning in declarations.json_only.items():
        yield f"| – | | `{source.name}` | {meaning} |"


def _partition(declarations: MetricDeclarations[Any, Any]) -> Iterator[str]:
    """Yield the text and the table about the metrics that a process has for each partition."""
    yield (
        f"In JSON each name follows `{declarations.group}.partition-<n>.`; Prometheus has the "
        f"label `{PARTITION}`."
    )
    yield ""
    yield from _HEAD
    yield from _rows(declarations.partition)


def _rows(families: Iterable[MetricFamily[Any]]) -> Iterator[str]:
    """Yield a row for each metric; its sources are its names in JSON."""
    for family in families:
        sources = ", ".join(f"`{source.name}`" for source in family.sources)
        more = f"; by label `{family.label_name}`" if family.label_name else ""
        yield f"| `{family.name}` | {family.kind} | {sources} | {family.meaning}{more} |"
