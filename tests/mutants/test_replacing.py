"""Functions of imported modules get the code of a changed text, or nothing changes."""

from __future__ import annotations

import importlib.util
import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType

import pytest

from tests.mutants.replacing import LoadedFunctions

TEXT = """
from contextlib import contextmanager
from dataclasses import dataclass

FACTOR = 2


def double(number):
    return number * FACTOR


def adder(number):
    return lambda other: number + other


add_one = adder(1)


@contextmanager
def entered():
    yield "before"


@dataclass(frozen=True, slots=True)
class Box:
    content: int = 1

    @property
    def label(self):
        return f"box {self.content}"

    @staticmethod
    def of(content):
        return Box(content)
"""


@pytest.fixture
def loaded(tmp_path: Path) -> Iterator[ModuleType]:
    file = tmp_path / "loaded_module.py"
    file.write_text(TEXT)
    spec = importlib.util.spec_from_file_location("loaded_module", file)
    assert spec is not None
    assert spec.loader is not None
    module = sys.modules["loaded_module"] = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    yield module
    del sys.modules["loaded_module"]


def replaced(module: ModuleType, *changes: tuple[str, str]) -> bool:
    """Replace pieces of the module's text, and a comment that moves all lines."""
    assert module.__file__ is not None
    text = f"# moved\n{TEXT}"
    for old, new in changes:
        assert old in text
        text = text.replace(old, new)
    path = Path(module.__file__)
    return LoadedFunctions(path.parent).replace(path, text)


def test_function_is_replaced_where_it_was_imported(loaded: ModuleType) -> None:
    imported = loaded.double
    assert replaced(loaded, ("number * FACTOR", "number * FACTOR + 1"))
    assert imported(3) == 7


def test_decorated_functions_and_methods_are_replaced(loaded: ModuleType) -> None:
    box = loaded.Box(5)
    assert replaced(
        loaded,
        ('yield "before"', 'yield "after"'),
        ('f"box {self.content}"', 'f"crate {self.content}"'),
        ("return Box(content)", "return Box(content + 1)"),
    )
    with loaded.entered() as text:
        assert text == "after"
    assert box.label == "crate 5"
    assert loaded.Box.of(1).content == 2


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("FACTOR = 2", "FACTOR = 3"),
        ("content: int = 1", "content: int = 2"),
        ("frozen=True", "frozen=False"),
        ("def double(number):", "def double(number=1):"),
        ("number + other", "number - other"),
        ("    return lambda", "    number = number\n    return lambda"),
    ],
    ids=["constant", "field", "decorator", "default", "inner function", "its outer function"],
)
def test_text_that_was_already_used_at_import_cannot_be_replaced(
    loaded: ModuleType, old: str, new: str
) -> None:
    assert not replaced(loaded, (old, new), ('f"box', 'f"crate'))
    assert loaded.Box(1).label == "box 1"


def test_replacement_with_the_same_effect_leaves_the_code(loaded: ModuleType) -> None:
    before = loaded.double.__code__
    assert replaced(loaded, ("number * FACTOR", "number * FACTOR  # the same"))
    assert loaded.double.__code__ is before
