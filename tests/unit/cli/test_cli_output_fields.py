"""The fields of each verb's JSON are declared, and recorded: scripts use their names."""

from __future__ import annotations

import json
import os
from itertools import count
from pathlib import Path
from typing import Annotated, Any, NotRequired, TypedDict

import pytest

from tests.unit.cli.test_cli_help import VERBS, WITHOUT_OUTPUT
from waltz.cli.changes import Change, RecoveryChange, change, recovery_change
from waltz.cli.cluster.rows import LocalProcess, LocalStatus
from waltz.cli.fields import Field, fields_of, printed_by
from waltz.cli.rows import as_value, column
from waltz.local import ClusterLayout, Shape
from waltz.local.core.plan import LocalClusterPlan, cluster_description

GOLDEN = Path(__file__).parent / "golden" / "output_fields.json"
UPDATE = (
    "scripts use these names. If the change is intended: "
    "WRITE_GOLDEN=1 pytest tests/unit/cli/test_cli_output_fields.py, then "
    "python -m docs.reference, and name the changed fields in CHANGELOG.md"
)


def declared() -> dict[str, dict[str, str]]:
    """Return the fields of each verb, and their kinds."""
    found = {}
    for words, command in VERBS.items():
        printed = printed_by(command)
        if printed is not None:
            found[" ".join(words)] = {each.name: each.kind for each in fields_of(printed.row)}
    return found


@pytest.mark.parametrize("words", VERBS, ids=" ".join)
def test_every_verb_with_output_declares_its_result(words: tuple[str, ...]) -> None:
    assert (printed_by(VERBS[words]) is not None) is (words not in WITHOUT_OUTPUT)


def test_fields_of_results_are_as_recorded() -> None:
    now = declared()
    if os.environ.get("WRITE_GOLDEN"):
        GOLDEN.write_text(json.dumps(now, indent=2) + "\n")
    recorded = json.loads(GOLDEN.read_text())
    for verb in sorted({*recorded, *now}):
        before, after = recorded.get(verb, {}), now.get(verb, {})
        gone = sorted(before.items() - after.items())
        assert not gone, f"waltz {verb} no longer prints {dict(gone)}; {UPDATE}"
        new = sorted(after.keys() - before.keys())
        assert not new, f"waltz {verb} prints new fields: {new}; {UPDATE}"


class Inner(TypedDict):
    name: NotRequired[str]


class Outer(TypedDict):
    size: int | None
    inner: Annotated[list[Inner], column(in_table=False)]
    by_name: dict[str, Inner]


def test_nested_fields_have_the_names_of_templates() -> None:
    assert list(fields_of(Outer)) == [
        Field("size", "integer or null"),
        Field("inner", "list of objects"),
        Field("inner.name", "text"),
        Field("by_name", "object of objects by name"),
        Field("by_name.NAME.name", "text"),
    ]


def test_declared_fields_of_a_local_cluster_are_those_of_its_file(tmp_path: Path) -> None:
    plan = LocalClusterPlan.of(Shape(partitions=1, storages=1, servers=1), count(20_000))
    found = cluster_description(plan, ClusterLayout(tmp_path), {}, None)
    assert set(found) == set(LocalStatus.__annotations__)
    processes: Any = found["processes"].values()
    assert {key for each in processes for key in each} <= set(LocalProcess.__annotations__)


def test_changes_print_the_fields_that_are_declared() -> None:
    done = change("storage recover", "a:1", [], partitions=[0])
    assert list(as_value(done)) == [each.name for each in fields_of(Change)]
    recovered = as_value(recovery_change(done, {1: "why"}))
    names = [each.name for each in fields_of(RecoveryChange) if "." not in each.name]
    assert list(recovered) == names
