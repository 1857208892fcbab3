"""Compare the schemas of the CRDs with the recorded ones: ``python -m tests.support.crd_record``.

The command records the present schemas. It refuses that while a schema is narrower than the
recorded one, unless ``--narrower`` is given: docs/kubernetes.md says which changes are allowed
within a version of the resources. Descriptions are not recorded.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import yaml

from waltz_operator.core.resources.model import RULES_EXTENSION
from waltz_operator.shell.crds import definitions

RECORD = Path(__file__).parents[1] / "unit" / "operator" / "recorded_crds.json"

Schema = Mapping[str, Any]

_LEAST = ("minimum", "minLength", "minItems", "minProperties")
_MOST = ("maximum", "maxLength", "maxItems", "maxProperties")
_FREE_FORM = "x-kubernetes-preserve-unknown-fields"
_OF_A_RELEASE = "spec.images."
"""The beginning of the paths whose defaults name the images of a release.

The API server stores them when a cluster is created, so that a later default changes no cluster.
"""


def present_schemas() -> dict[str, Schema]:
    """Return the schema of each served version of each kind, such as ``StoragePool v1alpha1``."""
    found = {}
    for text in definitions().values():
        spec = yaml.safe_load(text)["spec"]
        for version in spec["versions"]:
            if version["served"]:
                name = f"{spec['names']['kind']} {version['name']}"
                found[name] = _without_descriptions(version["schema"]["openAPIV3Schema"])
    return found


def recorded_schemas() -> dict[str, Schema]:
    """Return the recorded schemas."""
    schemas: dict[str, Schema] = json.loads(RECORD.read_text())
    return schemas


def all_narrowings(old: Mapping[str, Schema], new: Mapping[str, Schema]) -> list[str]:
    """Return sentences about what resources of the schemas ``old`` must not have in ``new``."""
    result = []
    for name, schema in old.items():
        if name in new:
            result += [f"{name}: {each}" for each in narrowings(schema, new[name])]
        else:
            result.append(f"{name} is no longer served")
    return result


def narrowings(old: Schema, new: Schema, path: str = "") -> Iterator[str]:
    """Yield why a value that ``old`` allows, or its meaning, may be lost in ``new``."""
    where = path or "the resource"
    if old.get("type") != new.get("type"):
        yield f"{where} has another type"
        return
    yield from _narrower_values(old, new, where)
    yield from _changed_default(old, new, where)
    for name in sorted({*new.get("required", ())} - {*old.get("required", ())}):
        yield f"{where}.{name} is required"
    parts, new_parts = old.get("properties", {}), new.get("properties", {})
    for name, part in parts.items():
        place = f"{path}.{name}" if path else name
        if name in new_parts:
            yield from narrowings(part, new_parts[name], place)
        else:
            yield f"{place} is removed"
    for keyword, suffix in (("items", "[]"), ("additionalProperties", "{}")):
        if keyword in old and keyword in new:
            yield from narrowings(old[keyword], new[keyword], f"{path}{suffix}")


def _narrower_values(old: Schema, new: Schema, where: str) -> Iterator[str]:
    for keyword in _LEAST:
        if keyword in new and new[keyword] > old.get(keyword, float("-inf")):
            yield f"{where} has a larger {keyword}"
    for keyword in _MOST:
        if keyword in new and new[keyword] < old.get(keyword, float("inf")):
            yield f"{where} has a smaller {keyword}"
    if "enum" in new and not ("enum" in old and {*old["enum"]} <= {*new["enum"]}):
        yield f"{where} allows fewer values"
    if new.get("pattern") not in (None, old.get("pattern")):
        yield f"{where} has another pattern"
    if old.get(_FREE_FORM) and not new.get(_FREE_FORM):
        yield f"{where} no longer keeps unknown fields"
    before = {each["rule"] for each in old.get(RULES_EXTENSION, ())}
    for each in new.get(RULES_EXTENSION, ()):
        if each["rule"] not in before:
            yield f"{where} has the new rule {each['rule']}"


def _changed_default(old: Schema, new: Schema, where: str) -> Iterator[str]:
    """Yield that a field without a value has another value now; defaults of objects are not used.

    Those repeat the defaults of their parts.
    """
    is_compared = "properties" not in old and not where.startswith(_OF_A_RELEASE)
    if is_compared and "default" in old and old["default"] != new.get("default"):
        yield f"{where} has another default"


def _without_descriptions(schema: Any) -> Any:
    """Return a schema without its texts; a field may be named ``description``, too."""
    if not isinstance(schema, dict):
        return schema
    result = {key: each for key, each in schema.items() if key != "description"}
    if "properties" in result:
        parts = result["properties"].items()
        result["properties"] = {name: _without_descriptions(each) for name, each in parts}
    for key in ("items", "additionalProperties"):
        if key in result:
            result[key] = _without_descriptions(result[key])
    return result


def main(arguments: list[str]) -> int:
    """Record the present schemas; return the exit status."""
    present = present_schemas()
    narrower = all_narrowings(recorded_schemas(), present) if RECORD.exists() else []
    for each in narrower:
        print(each)
    if narrower and arguments != ["--narrower"]:
        print("not recorded; docs/kubernetes.md says which changes a version of a resource allows")
        return 1
    RECORD.write_text(json.dumps(present, indent=1, sort_keys=True) + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
