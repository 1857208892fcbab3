"""Every planted bug and each of its tests exists; the hunt catches the quickest bugs."""

from __future__ import annotations

import ast
from dataclasses import replace
from pathlib import Path
from typing import TypeGuard

import pytest

from tests.mutants.hunters import Hunters
from tests.mutants.planted import PLANTED
from tests.mutants.planting import ROOT, Nodes, Planted, Seeds, module_name

LEAST_PLANTED = 120
QUICK = (
    "the last record of a batch is dropped",
    "one of three is a quorum",
    "the fastest replica commits",
    "an id is given twice",
    "records cached under the wrong id",
    "locks compared too strictly",
    "outcomes shifted by one",
    "a batch conflicts with its own locks",
    "a waiting read never times out",
)


@pytest.mark.parametrize("planted", PLANTED, ids=lambda planted: planted.name)
def test_planted_text_is_found_once_and_compiles(planted: Planted) -> None:
    path, text = planted.place()
    assert text != path.read_text()
    compile(text, str(path), "exec")


@pytest.mark.parametrize("planted", PLANTED, ids=lambda planted: planted.name)
def test_tests_that_catch_a_planted_bug_exist(planted: Planted) -> None:
    match planted.caught_by:
        case Nodes(names):
            assert names
            for name in names:
                file, *within = name.partition("[")[0].split("::")
                assert within, f"{name} names a whole file: name the test"
                assert within in declared_tests(ROOT / "tests" / file), name


def declared_tests(file: Path) -> list[list[str]]:
    """Return the names of the test functions in ``file``, with their classes."""
    found = []
    for node in ast.parse(file.read_text()).body:
        if isinstance(node, ast.ClassDef):
            found += [[node.name, test.name] for test in node.body if is_test(test)]
        elif is_test(node):
            found.append([node.name])
    return found


def is_test(node: ast.stmt) -> TypeGuard[ast.FunctionDef | ast.AsyncFunctionDef]:
    return isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) and node.name.startswith("test")


def test_names_of_planted_bugs_are_unique() -> None:
    assert len({planted.name for planted in PLANTED}) == len(PLANTED) >= LEAST_PLANTED


@pytest.mark.parametrize(
    ("file", "module"),
    [
        ("waltz/net/core/backoff.py", "waltz.net.core.backoff"),
        ("waltz/net/__init__.py", "waltz.net"),
        ("services/server/waltz_server/core/peer.py", "waltz_server.core.peer"),
        ("operator/waltz_operator/main.py", "waltz_operator.main"),
    ],
)
def test_module_name_is_the_one_that_the_product_imports(file: str, module: str) -> None:
    assert module_name(ROOT / file) == module


@pytest.mark.parametrize("name", QUICK)
def test_quickest_planted_bugs_are_caught(name: str) -> None:
    (planted,) = (p for p in PLANTED if p.name == name)
    hunted = Hunters(1).hunt(replace(planted, caught_by=Seeds(20)))
    assert hunted.caught is not None, hunted.failed


def test_hunt_without_a_bug_catches_nothing() -> None:
    """A hunt that reported a failure of its own as a caught bug would prove nothing."""
    node = "mutants/test_mutants.py::test_module_name_is_the_one_that_the_product_imports"
    assert Hunters(1).run_unchanged((node,)) == ""
    assert "pytest ended" in Hunters(1).run_unchanged(("mutants/test_mutants.py::test_missing",))


def test_change_without_an_effect_survives() -> None:
    """A hunt that catches a harmless change would catch every bug."""
    (fastest,) = (p for p in PLANTED if p.name == "the fastest replica commits")
    harmless = fastest.old.replace("\n", "  # the same\n")
    hunted = Hunters(1).hunt(replace(fastest, new=harmless, caught_by=Seeds(1)))
    assert (hunted.caught, hunted.failed) == (None, "")
