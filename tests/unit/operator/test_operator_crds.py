"""Test that the CRDs equal the models and fulfil the requirements of Kubernetes."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from waltz_operator.core.resources import StoragePool, WaltzCluster
from waltz_operator.shell.crds import definitions

_ROOT = Path(__file__).parents[3]


@pytest.mark.parametrize("folder", ["crds", "charts/waltz/files/crds"])
def test_crd_files_equal_the_models(folder: str) -> None:
    on_disk = {file.name: file.read_text() for file in (_ROOT / folder).glob("*.yaml")}
    assert on_disk == definitions(), "run: make crds"


def _schemas(schema: dict[str, Any], path: str) -> Iterator[tuple[str, dict[str, Any]]]:
    yield path, schema
    for name, each in schema.get("properties", {}).items():
        yield from _schemas(each, f"{path}.{name}")
    if "items" in schema:
        yield from _schemas(schema["items"], f"{path}[]")
    if isinstance(schema.get("additionalProperties"), dict):
        yield from _schemas(schema["additionalProperties"], f"{path}{{}}")


def _all_schemas() -> Iterator[tuple[str, dict[str, Any]]]:
    for text in definitions().values():
        definition = yaml.safe_load(text)
        (version,) = definition["spec"]["versions"]
        root = version["schema"]["openAPIV3Schema"]
        yield from _schemas(root, definition["spec"]["names"]["kind"])


@pytest.mark.parametrize(("path", "schema"), list(_all_schemas()))
def test_schemas_are_structural(path: str, schema: dict[str, Any]) -> None:
    assert isinstance(schema.get("type"), str), path
    assert not {"$ref", "anyOf", "allOf", "oneOf", "$defs", "title", "const"} & schema.keys(), path
    assert set(schema.get("required", ())) <= schema.get("properties", {}).keys(), path


def test_every_rule_has_a_message_in_one_line() -> None:
    rules = [
        (path, rule)
        for path, schema in _all_schemas()
        for rule in schema.get("x-kubernetes-validations", ())
    ]
    assert len(rules) > 20
    for path, rule in rules:
        assert len(rule["message"]) > 20, path
        assert "\n" not in rule["rule"], path


def test_fields_that_rules_compare_have_defaults() -> None:
    """A rule on a missing field is an error, not false."""
    schemas = dict(_all_schemas())
    tls = schemas["WaltzCluster.spec.tls"]
    assert tls["properties"]["secretName"]["default"] == ""
    assert schemas["StoragePool.spec.resources"]["properties"]["limits"]["default"] == {}


def test_default_of_an_object_contains_the_defaults_of_its_parts() -> None:
    """The API server validates a default before it fills in the defaults of its parts."""
    for path, schema in _all_schemas():
        default = schema.get("default")
        if isinstance(default, dict):
            parts = schema.get("properties", {})
            known = {name for name, part in parts.items() if "default" in part}
            assert known | set(schema.get("required", ())) <= default.keys(), path


def test_optional_fields_of_resource_have_defaults() -> None:
    cluster = WaltzCluster.model_validate(
        {
            "metadata": {"name": "log", "namespace": "x", "uid": "u", "unheardOf": 1},
            "spec": {"partitions": 4, "pools": ["a"], "zookeeper": {"managed": {}}},
        }
    )
    assert cluster.spec.servers.replicas == 2
    assert cluster.spec.zookeeper.managed is not None
    assert cluster.spec.zookeeper.managed.members == 3
    pool = StoragePool.model_validate(
        {
            "metadata": {"name": "a", "namespace": "x"},
            "spec": {"volumes": {"data": {"size": "1Gi"}}},
        }
    )
    assert pool.spec.to_json()["volumes"]["data"]["size"] == "1Gi"


def _rules(path: str) -> list[str]:
    schema = dict(_all_schemas())[path]
    return [each["rule"] for each in schema["x-kubernetes-validations"]]


@pytest.mark.parametrize("kind", ["WaltzCluster", "StoragePool"])
def test_name_that_no_service_can_have_is_refused(kind: str) -> None:
    (pattern,) = (
        found.group(1)
        for each in _rules(kind)
        if (found := re.fullmatch(r"self\.metadata\.name\.matches\('(.*)'\)", each))
    )
    for name in ("log", "a", "log-2"):
        assert re.search(pattern, name), name
    for name in ("2log", "-log", "log-", "a.b", "Log"):
        assert not re.search(pattern, name), name


def test_connect_string_may_have_addresses_of_ipv6() -> None:
    path = "WaltzCluster.spec.zookeeper.external.connectString"
    (pattern,) = (
        found.group(1)
        for each in _rules(path)
        if (found := re.fullmatch(r"self\.matches\(r'(.*)'\)", each))
    )
    for good in ("zk:2181", "[::1]:2181", "a.b:1,[2001:db8::1]:2181,10.0.0.1:3"):
        assert re.search(pattern, good), good
    for bad in ("::1:2181", "[::1]", "[zk]:2181", "zk", "zk:2181/waltz", "zk:2181,", "a b:1"):
        assert not re.search(pattern, bad), bad


def test_adoption_cannot_be_added_to_a_cluster_that_exists() -> None:
    """Its name in ZooKeeper would be another one, and neither field could be changed back."""
    expected = (
        "!has(self.spec.adopt) || has(oldSelf.spec.adopt) || !has(self.status) || "
        "!has(self.status.clusterKey) || self.status.clusterKey == ''"
    )
    assert expected in _rules("WaltzCluster")


@pytest.mark.parametrize("path", ["StoragePool.spec", "WaltzCluster.spec.zookeeper.managed"])
def test_zone_of_existing_volumes_cannot_change(path: str) -> None:
    assert "self.scheduling.zone == oldSelf.scheduling.zone" in _rules(path)
    zone = dict(_all_schemas())[f"{path}.scheduling.zone"]
    assert zone["default"] == "", "a rule on a missing field is an error"


def _fields() -> Iterator[tuple[str, dict[str, Any]]]:
    """Yield every field that a user or the operator writes, by its path."""
    for path, schema in _all_schemas():
        for name, field in schema.get("properties", {}).items():
            # Kubernetes itself describes the metadata.
            if name != "metadata":
                yield f"{path}.{name}", field


@pytest.mark.parametrize(("path", "field"), list(_fields()), ids=lambda each: str(each)[:80])
def test_every_field_has_a_description_with_its_default_and_unit(
    path: str, field: dict[str, Any]
) -> None:
    """`kubectl explain` shows the description, but neither the default nor a unit."""
    description = field.get("description", "")
    assert len(description) > 10, path
    assert description.endswith("."), path
    match field.get("default"):
        case bool(default):
            assert f"Default: {str(default).lower()}." in description
        case int(default):
            assert f"Default: {default}." in description
        case str(default) if default:
            assert f"Default: {default}." in description
    for suffix, unit in (("Seconds", "seconds"), ("Bytes", "bytes")):
        assert not path.endswith(suffix) or unit in description, path
    if any("an amount is" in each["message"] for each in field.get("x-kubernetes-validations", ())):
        assert re.search(r"such as `\d+Gi`|such as `\d+Mi`", description), path
