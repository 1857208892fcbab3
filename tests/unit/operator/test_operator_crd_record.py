"""A change of the resources keeps what users have written: the schemas do not become narrower."""

from __future__ import annotations

from typing import Any

import pytest

from tests.support.crd_record import (
    all_narrowings,
    narrowings,
    present_schemas,
    recorded_schemas,
)


def test_schemas_are_not_narrower_than_the_recorded_ones() -> None:
    narrower = all_narrowings(recorded_schemas(), present_schemas())
    assert narrower == [], "docs/kubernetes.md says which changes a version of a resource allows"


def test_recorded_schemas_are_up_to_date() -> None:
    assert recorded_schemas() == present_schemas(), "run: python -m tests.support.crd_record"


def _object(**properties: Any) -> dict[str, Any]:
    return {"type": "object", "properties": properties}


_RULE = {"rule": "self > 1", "message": "too small"}

_NARROWER: list[tuple[dict[str, Any], dict[str, Any], str]] = [
    (_object(a={"type": "string"}), _object(), "a is removed"),
    ({"type": "integer"}, {"type": "string"}, "the resource has another type"),
    ({"type": "integer", "minimum": 1}, {"type": "integer", "minimum": 2}, "larger minimum"),
    ({"type": "integer"}, {"type": "integer", "maximum": 9}, "smaller maximum"),
    ({"type": "string", "maxLength": 9}, {"type": "string", "maxLength": 8}, "smaller maxLength"),
    ({"type": "string", "enum": ["a", "b"]}, {"type": "string", "enum": ["a"]}, "fewer values"),
    ({"type": "string"}, {"type": "string", "enum": ["a"]}, "fewer values"),
    ({"type": "string"}, {"type": "string", "pattern": "a"}, "another pattern"),
    (
        {"type": "object", "x-kubernetes-preserve-unknown-fields": True},
        {"type": "object"},
        "no longer keeps unknown fields",
    ),
    (
        {"type": "integer"},
        {"type": "integer", "x-kubernetes-validations": [_RULE]},
        "the new rule self > 1",
    ),
    ({"type": "integer", "default": 1}, {"type": "integer", "default": 2}, "another default"),
    ({"type": "integer", "default": 1}, {"type": "integer"}, "another default"),
    (_object(), {**_object(), "required": ["a"]}, "the resource.a is required"),
    (
        _object(a={"type": "array", "items": _object(b={"type": "string"})}),
        _object(a={"type": "array", "items": _object()}),
        "a[].b is removed",
    ),
]


@pytest.mark.parametrize(("old", "new", "reason"), _NARROWER, ids=[each[2] for each in _NARROWER])
def test_narrower_schema_is_found_in_one_direction_only(
    old: dict[str, Any], new: dict[str, Any], reason: str
) -> None:
    (found,) = narrowings(old, new)
    assert reason in found
    back = [] if "type" in reason or "default" in reason else list(narrowings(new, old))
    assert back == []


def test_wider_schema_is_not_narrower() -> None:
    old = _object(a={"type": "string", "enum": ["a"], "default": "a"})
    wider = {"type": "string", "enum": ["a", "b"], "default": "a", "description": "more"}
    assert list(narrowings(old, _object(a=wider, new={"type": "string", "default": ""}))) == []


def test_version_that_is_no_longer_served_is_narrower() -> None:
    assert all_narrowings({"A v1": {}}, {"A v2": {}}) == ["A v1 is no longer served"]


def test_default_of_an_image_names_its_release() -> None:
    def images(default: str) -> dict[str, Any]:
        image = {"type": "string", "default": default}
        return _object(spec=_object(images=_object(server=image)))

    assert list(narrowings(images("waltz-server:1"), images("waltz-server:2"))) == []
