"""Test the rights, values and files of the chart without Helm."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest
import yaml

from waltz_operator.core.objects.manifest import API_VERSIONS
from waltz_operator.main import read_settings
from waltz_operator.shell.handlers import WATCHED_KINDS
from waltz_operator.shell.kube_api import path_of

_CHART = Path(__file__).parents[3] / "charts" / "waltz"

_READ = {"get", "list"}
_WRITE = {"create", "patch", "delete"}

_NEEDED = dict.fromkeys(API_VERSIONS, _READ | _WRITE) | {
    "Event": {"create"},
    "PersistentVolumeClaim": _READ | {"patch", "delete"},
    "Pod": _READ | {"patch", "delete"},
    "StoragePool": {"get", "list", "watch", "patch"},
    "WaltzCluster": {"get", "list", "watch", "patch"},
}


def granted_verbs() -> dict[tuple[str, str], set[str]]:
    rules = yaml.safe_load((_CHART / "files" / "rules.yaml").read_text())
    return {
        (group, resource): set(rule["verbs"])
        for rule in rules
        for group in rule["apiGroups"]
        for resource in rule["resources"]
    }


@pytest.mark.parametrize("kind", [kind for kind in API_VERSIONS if kind != "Lease"])
def test_role_grants_exactly_the_needed_verbs(kind: str) -> None:
    group, _, _ = API_VERSIONS[kind].rpartition("/")
    resource = path_of(kind, "x").rpartition("/")[2]
    watched = {"watch"} if kind in WATCHED_KINDS else set()
    assert granted_verbs()[group, resource] == _NEEDED[kind] | watched


def test_values_schema_has_every_value_and_no_other() -> None:
    values = yaml.safe_load((_CHART / "values.yaml").read_text())
    schema = json.loads((_CHART / "values.schema.json").read_text())
    check(values, schema, schema["definitions"], "values")


def check(
    values: dict[str, Any], schema: dict[str, Any], definitions: dict[str, Any], path: str
) -> None:
    if "$ref" in schema:
        schema = definitions[schema["$ref"].removeprefix("#/definitions/")]
    known = schema.get("properties")
    if known is None:
        return
    assert values.keys() == known.keys() - {"global"}, path
    for name, value in values.items():
        if isinstance(value, dict):
            check(value, known[name], definitions, f"{path}.{name}")


def test_templates_use_only_existing_values() -> None:
    values = yaml.safe_load((_CHART / "values.yaml").read_text())
    for template in _CHART.rglob("templates/**/*.*"):
        for used in re.findall(r"\.Values\.([A-Za-z.]+)", template.read_text()):
            found: Any = values
            for name in used.split("."):
                assert name in found, f"{template.name}: {used}"
                found = found[name]


def test_template_blocks_are_closed() -> None:
    for template in _CHART.rglob("templates/**/*.*"):
        text = template.read_text()
        opened = len(re.findall(r"\{\{-?\s*(?:if|range|with|define)\b", text))
        assert opened == len(re.findall(r"\{\{-?\s*end\b", text)), template.name


def test_deployment_sets_every_variable_that_the_operator_reads() -> None:
    text = (_CHART / "templates" / "deployment.yaml").read_text()
    names = set(re.findall(r"name: (WALTZ_OPERATOR_\w+)", text))
    read = set()

    class Reading(dict[str, str]):
        def get(self, name: str, default: Any = None) -> Any:
            read.add(name)
            return default

    read_settings(Reading())
    assert names == read
