"""Test that one declaration of a result gives its JSON value and its tables."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from typing import Annotated
from uuid import UUID

import pytest

from waltz.cli.rows import Rows, as_cell, blank, column, listing, nested, record


class Color(Enum):
    RED = "red"


@dataclass(frozen=True, slots=True)
class Leaf:
    name: str
    healthy: bool
    hidden: Annotated[int, column(in_table=False)]


@dataclass(frozen=True, slots=True)
class Tree:
    tree_id: int
    color: Annotated[Color, column("colour", show=lambda color: color.name)]
    partitions: tuple[int, ...]
    problem: Annotated[str | None, column(show=blank)]
    count: Annotated[str, column(in_json=False)]
    leaves: Annotated[tuple[Leaf, ...], nested(Leaf, "Leaves", show=len)]


@dataclass(frozen=True, slots=True)
class Wood:
    place: Annotated[str, column("where", show=lambda place: f"in {place}")]
    leaves: Annotated[tuple[Leaf, ...], nested(Leaf, "Leaves")]


TREE = Tree(3, Color.RED, (0, 1, 2, 5), None, "one", (Leaf("a", True, 7),))


def test_fields_of_a_record_are_keys_of_its_json_value() -> None:
    assert record("Tree", TREE).value == {
        "tree_id": 3,
        "color": "red",
        "partitions": [0, 1, 2, 5],
        "problem": None,
        "leaves": [{"name": "a", "healthy": True, "hidden": 7}],
    }


def test_record_is_table_of_names_and_values_and_its_nested_rows() -> None:
    head, leaves = record("Tree", TREE).tables
    assert head == Rows(
        "Tree",
        ("", ""),
        [
            ("tree id", 3),
            ("colour", "RED"),
            ("partitions", "0-2,5"),
            ("problem", ""),
            ("count", "one"),
            ("leaves", 1),
        ],
    )
    assert leaves == Rows("Leaves", ("name", "healthy"), [("a", "yes")])


def test_listing_repeats_first_column_in_table_of_nested_rows() -> None:
    shown = listing("Trees", Tree, [TREE, TREE])
    trees, leaves = shown.tables
    assert len(trees.cells) == 2
    assert leaves == Rows(
        "Leaves", ("tree id", "name", "healthy"), [(3, "a", "yes"), (3, "a", "yes")]
    )


def test_first_column_has_the_same_cells_in_the_table_of_nested_rows() -> None:
    woods, leaves = listing("Woods", Wood, [Wood("Bern", TREE.leaves)]).tables
    assert woods.cells == [("in Bern",)]
    assert leaves == Rows("Leaves", ("where", "name", "healthy"), [("in Bern", "a", "yes")])


def test_empty_listing_keeps_its_columns() -> None:
    shown = listing("Trees", Tree, [])
    assert shown.value == []
    assert list(shown.tables[0].columns) == [
        "tree id",
        "colour",
        "partitions",
        "problem",
        "count",
        "leaves",
    ]


@pytest.mark.parametrize(
    ("value", "cell"),
    [
        (None, "-"),
        (True, "yes"),
        (False, "no"),
        ((), "-"),
        ((1, 2, 3), "1-3"),
        (("a", "b"), "a b"),
        (4.5, 4.5),
        (UUID(int=1), UUID(int=1)),
    ],
)
def test_table_cell_formats_values_for_reading(value: object, cell: object) -> None:
    assert as_cell(value) == cell
