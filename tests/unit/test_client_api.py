"""The real client and the mock have the interface that applications program against."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import get_args, get_type_hints

import pytest

import waltz
from waltz import LogClient, LogStream, mock


def as_interfaces(
    real: waltz.Client[str],
    mocked: mock.MockClient[str],
    stream: waltz.Stream[str],
    mock_stream: mock.MockStream[str],
) -> tuple[list[LogClient[str]], list[LogStream[str]]]:
    """For the type checker: it refuses this if one of them is no such thing."""
    return [real, mocked], [stream, mock_stream]


def public(kind: type) -> dict[str, list[str] | None]:
    """Return the public members: the arguments of methods, None for what is a property."""
    members = inspect.getmembers(kind, lambda m: inspect.isfunction(m) or isinstance(m, property))
    return {
        name: None if isinstance(member, property) else arguments(member)
        for name, member in members
        if not name.startswith("_")
    }


def arguments(method: Callable[..., object]) -> list[str]:
    """Return the arguments in their order, then those that must be named, one by one."""
    found: list[str] = []
    named: list[str] = []
    for parameter in inspect.signature(method).parameters.values():
        match parameter.kind:
            case inspect.Parameter.VAR_KEYWORD:
                (unpacked,) = get_args(get_type_hints(method)[parameter.name])
                named += unpacked.__annotations__
            case inspect.Parameter.KEYWORD_ONLY:
                named.append(parameter.name)
            case _:
                found.append(parameter.name)
    return [*found, *sorted(named)]


@pytest.mark.parametrize(
    ("interface", "kind"),
    [
        (LogClient, waltz.Client),
        (LogClient, mock.MockClient),
        (LogStream, waltz.Stream),
        (LogStream, mock.MockStream),
    ],
)
def test_names_and_arguments_are_the_same(interface: type, kind: type) -> None:
    wanted, found = public(interface), public(kind)
    assert {name: found[name] for name in wanted} == wanted
    assert "write_locks" in (public(LogClient)["append"] or ())
