"""Test that docstrings of the public methods name every parameter, and what is returned."""

from __future__ import annotations

import inspect
import re
from collections.abc import Iterator
from typing import Any

import pytest

import waltz
import waltz.sync
import waltz.testing
from waltz.sync.blocking import Blocking

CLASSES = (
    waltz.LogClient,
    waltz.StateFollower,
    waltz.sync.SyncClient,
    waltz.testing.InProcessCluster,
)
_RETURNS = re.compile(r"\b(?:returns?|yields?|whether)\b", re.IGNORECASE)


def methods() -> Iterator[Any]:
    """Yield each public method of `CLASSES`, as a parameter with its name."""
    for owner in CLASSES:
        for name, member in inspect.getmembers_static(owner):
            if name.startswith("_") or isinstance(member, property):
                continue
            if callable(member) or isinstance(member, staticmethod | classmethod):
                yield pytest.param(owner, name, id=f"{owner.__name__}.{name}")


def undocumented(signature: inspect.Signature, text: str) -> list[str]:
    """Return the parameters that a docstring has neither in double backticks nor as an entry."""
    return [
        name
        for name in signature.parameters
        if name != "self"
        and f"``{name}``" not in text
        and not re.search(rf"^ +{name}: ", text, re.MULTILINE)
    ]


@pytest.mark.parametrize(("owner", "name"), list(methods()))
def test_docstring_of_public_method_names_its_parameters_and_result(owner: type, name: str) -> None:
    method = getattr(owner, name)
    text = inspect.getdoc(method) or ""
    signature = inspect.signature(method)
    assert text
    assert undocumented(signature, text) == []
    if signature.return_annotation not in (None, "None"):
        assert _RETURNS.search(text), f"it does not say what it returns: {text}"


@pytest.mark.parametrize("owner", [waltz.StateFollower, waltz.testing.InProcessCluster])
def test_docstring_of_class_names_the_parameters_of_its_constructor(owner: type) -> None:
    assert undocumented(inspect.signature(owner), inspect.getdoc(owner) or "") == []


def test_docstring_of_blocking_method_refers_to_the_method_that_it_calls() -> None:
    """Their parameters are those of the other method, whose docstring names them."""
    source = inspect.getsource(waltz.sync.SyncClient)
    members = vars(waltz.sync.SyncClient).items()
    blocking = [name for name, member in members if isinstance(member, Blocking)]
    assert "append" in blocking
    for name in blocking:
        assert f"{name} = Blocking(LogClient[DataT].{name})" in source
        assert f"see `waltz.LogClient.{name}`" in source


def test_parameter_without_a_mention_is_found() -> None:
    def called(first: int, second: int) -> None:
        """Add ``first`` and second."""

    assert undocumented(inspect.signature(called), called.__doc__ or "") == ["second"]
