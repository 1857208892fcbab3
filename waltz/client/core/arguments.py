"""Check the arguments of appends where they enter the library. Pure.

An argument that is not checked here would fail while its message is encoded. That error would name
no argument, and the connection, which other appends share, would be closed.
"""

from __future__ import annotations

from collections.abc import Iterable

from waltz.protocol.locks import Lock, lock_hashes
from waltz.protocol.records import NO_TRANSACTION

_HEADER_LIMIT = 1 << 31
_ID_LIMIT = 1 << 63


def checked_header(header: int) -> int:
    """Return ``header``. Raises TypeError, or ValueError if it has more than 32 bits."""
    if not isinstance(header, int):
        raise TypeError(f"header is {header!r}: it is a number of 32 bits; encode more in the data")
    if not -_HEADER_LIMIT <= header < _HEADER_LIMIT:
        raise ValueError(
            f"header is {header}: it has 32 bits, so it is between {-_HEADER_LIMIT} and "
            f"{_HEADER_LIMIT - 1}; encode more in the data"
        )
    return header


def checked_mark(mark: int | None) -> int | None:
    """Return ``mark``. Raises TypeError, or ValueError if no transaction has this id."""
    if mark is None:
        return None
    if not isinstance(mark, int):
        raise TypeError(f"mark is {mark!r}: it is the id of a transaction")
    if not NO_TRANSACTION <= mark < _ID_LIMIT:
        raise ValueError(
            f"mark is {mark}: it is the id of a transaction, or {NO_TRANSACTION} before the first"
        )
    return mark


def checked_locks(name: str, locks: Iterable[Lock]) -> tuple[int, ...]:
    """Return the hashes of ``locks``, the argument ``name``. Raises TypeError."""
    if isinstance(locks, Lock):
        raise TypeError(f"{name} is one lock: put it into a list, [{locks}]")
    try:
        return lock_hashes(tuple(locks))
    except (AttributeError, TypeError):
        raise TypeError(_wrong_lock(name, locks)) from None


def _wrong_lock(name: str, locks: object) -> str:
    """Return what is wrong with locks that have no hashes."""
    if not isinstance(locks, Iterable):
        return f"{name} is {locks!r}: it is a list of waltz.Lock"
    for lock in locks:
        match lock:
            case Lock(str(), int()):
                continue
            case Lock(text, number):
                return f"{name} has Lock({text!r}, {number!r}): a lock is a text and a number"
            case (str(text), int(number)):
                return f"{name} has a tuple: pass waltz.Lock({text!r}, {number}) in a list"
            case _:
                return f"{name} has {lock!r}: it is a list of waltz.Lock(text, number)"
    return f"{name} has a wrong lock: it is a list of waltz.Lock(text, number)"


def check_partition(partition: object) -> None:
    """Raise TypeError if ``partition`` is not a number."""
    if not isinstance(partition, int):
        raise TypeError(f"partition is {partition!r}: it is a number; partitions begin at 0")
