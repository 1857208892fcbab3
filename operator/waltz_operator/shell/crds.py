"""Generate the CRDs from their models: ``python -m waltz_operator.shell.crds DIR ...``.

Writes one YAML file a kind into each folder; what it writes depends on the models alone. Kubernetes
wants *structural* schemas: no references, no null, and a type everywhere.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import yaml

from waltz_operator.core.resources import GROUP, VERSION, StoragePool, WaltzCluster
from waltz_operator.core.resources.model import RULES, Model

_HEADER = "# Made by `make crds` from operator/waltz_operator/resources. Do not edit.\n"
_LEFT_OUT = ("title", "additionalProperties", "$defs")


def definitions() -> dict[str, str]:
    """Return the files' names and what is in them."""
    kinds = (_cluster_definition(), _pool_definition())
    return {f"{each['metadata']['name']}.yaml": _HEADER + _as_yaml(each) for each in kinds}


def structural_schema(model: type[Model]) -> dict[str, Any]:
    """Return what the API server checks a resource of this kind against."""
    made = model.model_json_schema(by_alias=True)
    schema = _structural(made, made.get("$defs", {}))
    # Of the metadata, which Kubernetes has rules of its own for, a schema may say only this.
    schema["properties"]["metadata"] = {"type": "object"}
    schema["properties"]["status"].pop("default", None)
    schema["required"] = ["spec"]
    return schema


def main(folder: Path) -> None:
    """Write the files."""
    folder.mkdir(parents=True, exist_ok=True)
    for name, text in definitions().items():
        (folder / name).write_text(text)


def _structural(schema: dict[str, Any], shared: dict[str, Any]) -> dict[str, Any]:
    reference = schema.get("$ref")
    if reference is not None:
        own = {key: value for key, value in schema.items() if key != "$ref"}
        schema = {**shared[reference.rpartition("/")[2]], **own}
    alternatives = schema.get("anyOf")
    if alternatives is not None:
        # The only alternative that models have is null, which Kubernetes writes by leaving out.
        (real,) = (each for each in alternatives if each != {"type": "null"})
        own = {key: value for key, value in schema.items() if key not in ("anyOf", "default")}
        return _structural({**real, **own}, shared)
    result = {key: value for key, value in schema.items() if key not in _LEFT_OUT}
    if "properties" in schema:
        result["properties"] = {
            name: _structural(each, shared) for name, each in schema["properties"].items()
        }
    if "items" in schema:
        result["items"] = _structural(schema["items"], shared)
    result |= _map_of(schema, shared)
    if result.get("default", "") is None:
        result.pop("default")
    if "default" in result:
        # In full: the API server checks a default by the rules before defaults of parts fill it.
        result["default"] = _without_null(result["default"])
    if any("self.matches(" in each["rule"] for each in result.get(RULES, ())):
        result.pop("pattern")
    if "description" in result:
        result["description"] = " ".join(result["description"].split())
    return result


def _map_of(schema: dict[str, Any], shared: dict[str, Any]) -> dict[str, Any]:
    """Return the schema of a map's values, if it is one whose values are all of a type."""
    values = schema.get("additionalProperties")
    if isinstance(values, dict):
        return {"additionalProperties": _structural(values, shared)}
    return {}


def _without_null(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _without_null(each) for key, each in value.items() if each is not None}
    return value


def _cluster_definition() -> dict[str, Any]:
    columns = (
        _column("Ready", ".status.conditions[?(@.type=='Ready')].status"),
        _column("Partitions", ".status.partitions", "partitions that have their quorum"),
        _column("Storages", ".status.storages", "storages that answer"),
        _column("Servers", ".status.servers", "servers that have joined"),
        _column("Message", ".status.message", "what is waited for, or what is wrong"),
        _column("Pools", ".spec.pools", wide=True),
        _column("ZooKeeper", ".status.connectString", wide=True),
        _age(),
    )
    names = {"plural": "waltzclusters", "singular": "waltzcluster", "shortNames": ["wc"]}
    return _definition("WaltzCluster", names, structural_schema(WaltzCluster), columns)


def _pool_definition() -> dict[str, Any]:
    columns = (
        _column("Ready", ".status.conditions[?(@.type=='Ready')].status"),
        _column("Cluster", ".status.cluster"),
        _column("Group", ".status.group", kind="integer"),
        _column("Storages", ".status.storages", "storages that serve their partitions"),
        _column("Size", ".spec.volumes.data.size", wide=True),
        _column("Zone", ".spec.scheduling.zone", wide=True),
        _column("Message", ".status.message", wide=True),
        _age(),
    )
    names = {"plural": "storagepools", "singular": "storagepool", "shortNames": ["sp"]}
    return _definition("StoragePool", names, structural_schema(StoragePool), columns)


def _definition(
    kind: str, names: dict[str, Any], schema: dict[str, Any], columns: tuple[dict[str, Any], ...]
) -> dict[str, Any]:
    return {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": f"{names['plural']}.{GROUP}"},
        "spec": {
            "group": GROUP,
            "scope": "Namespaced",
            "names": {"kind": kind, "listKind": f"{kind}List", "categories": ["waltz"], **names},
            "versions": [
                {
                    "name": VERSION,
                    "served": True,
                    "storage": True,
                    "subresources": {"status": {}},
                    "additionalPrinterColumns": list(columns),
                    "schema": {"openAPIV3Schema": schema},
                }
            ],
        },
    }


def _column(
    name: str, path: str, description: str = "", *, kind: str = "string", wide: bool = False
) -> dict[str, Any]:
    column: dict[str, Any] = {"name": name, "type": kind, "jsonPath": path}
    if description:
        column["description"] = description
    if wide:
        column["priority"] = 1
    return column


def _age() -> dict[str, Any]:
    return _column("Age", ".metadata.creationTimestamp", kind="date")


def _as_yaml(value: dict[str, Any]) -> str:
    return yaml.dump(value, Dumper=_PlainDumper, sort_keys=False, width=100)


class _PlainDumper(yaml.SafeDumper):
    """Writes everything out: whoever reads a schema should not have to look anchors up."""

    def ignore_aliases(self, data: Any) -> bool:
        """Never refer from one place to another."""
        return True


if __name__ == "__main__":
    for each in sys.argv[1:]:
        main(Path(each))
