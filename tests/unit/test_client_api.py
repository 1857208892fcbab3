"""The real client and the mock have the interface that applications program against."""

from __future__ import annotations

import inspect

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


def public(kind: type) -> dict[str, inspect.Signature | None]:
    members = inspect.getmembers(kind, lambda m: inspect.isfunction(m) or isinstance(m, property))
    return {
        name: None if isinstance(member, property) else inspect.signature(member)
        for name, member in members
        if not name.startswith("_")
    }


@pytest.mark.parametrize(
    ("interface", "kind"),
    [
        (LogClient, waltz.Client),
        (LogClient, mock.MockClient),
        (LogStream, waltz.Stream),
        (LogStream, mock.MockStream),
    ],
)
def test_names_and_parameters_are_the_same(interface: type, kind: type) -> None:
    wanted, found = public(interface), public(kind)
    for name, signature in wanted.items():
        assert name in found
        if signature is not None:
            there = found[name]
            assert there is not None
            assert list(there.parameters.values()) == list(signature.parameters.values()), name
