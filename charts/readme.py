"""The chart's README, made of its values and the remarks about them. Pure, but for ``read``."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import yaml

_MADE = "<!-- Made by `python -m charts.made` of values.yaml and charts/readme.py. -->"

_ABOUT = """\
# Waltz on Kubernetes

{made}

{description}. The chart installs the operator, the definitions of its resources (`WaltzCluster`, \
`StoragePool`) and the rights that the operator needs; what it does is told in \
[docs/kubernetes.md](../../docs/kubernetes.md). Helm 3 or 4, Kubernetes {kubernetes}.

```text
helm install waltz charts/waltz --namespace waltz-system --create-namespace
helm test waltz --namespace waltz-system
```

**Upgrading** is `helm upgrade`; the definitions are upgraded, too. Where they belong to a release \
of another name or namespace, the second release is installed with `--set crds.install=false`; a \
release that shall take them over, with `--take-ownership`.

**Uninstalling** leaves the definitions, all clusters and all volumes. Clusters go on, and nobody \
repairs them. To delete a cluster as its volumes' `onDeletion` says, delete its WaltzCluster \
before the operator.

**Rights.** With `watchNamespace` the operator has a Role in that namespace instead of a \
ClusterRole. Definitions are not of a namespace: where you may install only into your own, have \
somebody else apply `crds/`, and set `crds.install` to `false`. No namespace may have two \
operators: beside one of all namespaces there is no place for another.

## Values

| Value | Default | Meaning |
|---|---|---|
"""


def read(chart: Path) -> str:
    """Return the README of the chart in a folder."""
    about = yaml.safe_load((chart / "Chart.yaml").read_text())
    text = _ABOUT.format(
        made=_MADE,
        description=about["description"],
        kubernetes=about["kubeVersion"].removesuffix("-0").replace(">=", "≥ "),
    )
    return text + "\n".join(_rows((chart / "values.yaml").read_text())) + "\n"


def _rows(values: str) -> Iterator[str]:
    """Yield a row for every value that has a remark; groups of values have none."""
    lines = values.splitlines()
    root = yaml.compose(values)
    assert isinstance(root, yaml.MappingNode)
    yield from _of_group(root, "", lines)


def _of_group(group: yaml.MappingNode, path: str, lines: list[str]) -> Iterator[str]:
    for key, value in group.value:
        name = f"{path}{key.value}"
        remark = _remark(lines, key.start_mark.line)
        if remark:
            yield _row(name, _shown(value), remark)
        else:
            assert isinstance(value, yaml.MappingNode), f"{name} has no remark"
            yield from _of_group(value, f"{name}.", lines)


def _remark(lines: list[str], line: int) -> str:
    """Return the comment right above a line."""
    found: list[str] = []
    while line > 0 and lines[line - 1].lstrip().startswith("#"):
        line -= 1
        found.insert(0, lines[line].lstrip().removeprefix("#").strip())
    return " ".join(found)


def _shown(value: yaml.Node) -> str:
    return f"`{json.dumps(yaml.safe_load(yaml.serialize(value)))}`"


def _row(name: str, default: str, remark: str) -> str:
    return f"| `{name}` | {default} | {remark.replace('|', chr(92) + '|')} |"
