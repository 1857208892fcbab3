"""Test the errors of arguments that cannot be appended."""

from __future__ import annotations

from typing import Any

import pytest

from waltz.client import Draft, TextSerializer
from waltz.client.core.serializers import append_of
from waltz.protocol import Lock

LOCK = Lock("seat", 1)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"write_locks": [("seat", 1)]}, r"^write_locks has a tuple: pass waltz.Lock\('seat', 1\)"),
        ({"read_locks": ("seat", 1)}, r"^read_locks has 'seat': it is a list of waltz.Lock"),
        ({"append_locks": [LOCK, None]}, "^append_locks has None: it is a list of waltz.Lock"),
        ({"write_locks": [Lock("seat", "1")]}, r"has Lock\('seat', '1'\): a lock is a text and a"),  # type: ignore[arg-type]
        ({"write_locks": [Lock(b"seat", 1)]}, r"has Lock\(b'seat', 1\): a lock is a text and a"),  # type: ignore[arg-type]
        ({"write_locks": LOCK}, "^write_locks is one lock: put it into a list"),
        ({"write_locks": 7}, "^write_locks is 7: it is a list of waltz.Lock"),
        ({"header": "7"}, "^header is '7': it is a number of 32 bits"),
        ({"header": 1.5}, "^header is 1.5: it is a number"),
    ],
)
def test_argument_of_a_wrong_type_is_named(arguments: dict[str, Any], message: str) -> None:
    with pytest.raises(TypeError, match=message):
        append_of(Draft(b"", **arguments), None, None)


@pytest.mark.parametrize("header", [1 << 31, -(1 << 31) - 1, 1 << 40])
def test_header_of_more_than_32_bits_is_refused(header: int) -> None:
    with pytest.raises(ValueError, match=rf"^header is {header}: it has 32 bits"):
        append_of(Draft(b"", header=header), None, None)


@pytest.mark.parametrize("header", [(1 << 31) - 1, -(1 << 31), 0])
def test_header_of_32_bits_is_accepted(header: int) -> None:
    assert append_of(Draft(b"", header=header), None, None).header == header


def test_mark_of_an_empty_log_is_accepted() -> None:
    assert append_of(Draft(b""), None, -1).mark == -1


def test_mark_that_is_not_an_id_is_refused() -> None:
    with pytest.raises(ValueError, match=r"^mark is -2: it is the id of a transaction, or -1"):
        append_of(Draft(b""), None, -2)
    with pytest.raises(ValueError, match=r"^mark is"):
        append_of(Draft(b""), None, 1 << 63)
    with pytest.raises(TypeError, match=r"^mark is '3': it is the id"):
        append_of(Draft(b""), None, "3")  # type: ignore[arg-type]


def test_locks_may_come_from_a_generator() -> None:
    locks = (lock for lock in (LOCK, LOCK))
    assert append_of(Draft(b"", write_locks=locks), None, None).num_locks == 2


def test_bytes_of_a_client_with_text_are_named() -> None:
    with pytest.raises(TypeError, match=r"^data is bytes, not str"):
        append_of(Draft(b"text"), TextSerializer(), None)
