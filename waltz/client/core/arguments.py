"""Check the arguments of calls where they enter the library. Pure.

An argument that is not checked here would fail while its message is encoded, or at the server. That
error would name no argument. It would also close the connection, which other calls share.

Functions named ``check_…`` return nothing, and those named ``checked_…`` return the argument in the
form that is needed. They raise TypeError if the type is wrong and ValueError if the value is wrong.
The text of the error names the argument, its value, and what the value must be. A bool is refused
as a number: most likely it was meant for another argument.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TypeGuard

from waltz.client.core.values import Draft
from waltz.protocol.locks import Lock, lock_hashes
from waltz.protocol.records import NO_TRANSACTION, ReqId

_HEADER_LIMIT = 1 << 31
"""Headers are signed numbers of 32 bits: they are below this number."""
_ID_LIMIT = 1 << 63
"""Transaction ids are signed numbers of 64 bits: they are below this number."""
MOST_INT = (1 << 31) - 1
"""The largest count: the wire and ZooKeeper have counts as signed numbers of 32 bits."""
_MOST_SHOWN = 80
"""The largest number of characters of a value in the text of an error."""

_ID_TEXT = "the id of a transaction"
"""What an id is, for the text of errors."""


def checked_header(header: int) -> int:
    """Return ``header``. Raises TypeError, or ValueError if it has more than 32 bits."""
    if not is_int(header):
        raise TypeError(
            f"header is {shown(header)}: it must be a whole number of 32 bits; encode more in "
            "the data"
        )
    if not -_HEADER_LIMIT <= header < _HEADER_LIMIT:
        raise ValueError(
            f"header is {header}: it must be from {-_HEADER_LIMIT} to {_HEADER_LIMIT - 1}, a "
            "whole number of 32 bits; encode more in the data"
        )
    return header


def checked_mark(mark: int | None) -> int | None:
    """Return ``mark``, which may be None. Raises the errors of `check_position`."""
    if mark is not None:
        check_position("mark", mark)
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
    """Return the text of an error: what is wrong with ``locks``, the argument ``name``."""
    if not isinstance(locks, Iterable):
        return f"{name} is {shown(locks)}: it must be a list of waltz.Lock"
    for lock in locks:
        match lock:
            case Lock():
                continue
            case (str(text), int(number)):
                return f"{name} has a tuple: pass waltz.Lock({text!r}, {number}) in a list"
            case _:
                return f"{name} has {shown(lock)}: it must be a list of waltz.Lock(text, number)"
    # ``locks`` is an iterator, from which the caller has already taken the wrong lock.
    return f"{name} has a wrong lock: it must be a list of waltz.Lock(text, number)"


def check_partition(partition: object) -> None:
    """Raise TypeError if ``partition`` is not a whole number."""
    if not is_int(partition):
        raise TypeError(
            f"partition is {shown(partition)}: it must be a whole number; partitions begin at 0"
        )


def checked_id(name: str, transaction_id: object) -> int:
    """Return ``transaction_id``, the argument ``name``.

    Raises TypeError if it is not a whole number.
    """
    if not is_int(transaction_id):
        raise TypeError(f"{name} is {shown(transaction_id)}: it must be {_ID_TEXT}, a whole number")
    return transaction_id


def check_position(name: str, position: object) -> None:
    """Check the argument ``name``: the id of a transaction, or -1 for the beginning of the log.

    Raises TypeError or ValueError.
    """
    if not NO_TRANSACTION <= checked_id(name, position) < _ID_LIMIT:
        raise ValueError(
            f"{name} is {position}: it must be {_ID_TEXT}, or {NO_TRANSACTION} before the first, "
            "and below 2**63"
        )


def check_bounds(partitions: object, after: object, until: object) -> None:
    """Check the arguments of `LogClient.stream`. Raises TypeError or ValueError.

    Whether the partitions exist is not checked here.
    """
    if isinstance(partitions, Mapping):
        _check_positions("partitions", partitions, check_position)
    elif not is_int(partitions):
        raise TypeError(
            f"partitions is {shown(partitions)}: it must be one partition, a whole number, or "
            "a dict from each partition to the transaction after which its stream begins, such as "
            "{0: -1}"
        )
    check_position("after", after)
    if isinstance(until, Mapping):
        _check_positions("until", until, _check_end)
    elif until is not None:
        if not is_int(until):
            raise TypeError(
                f"until is {shown(until)}: it must be the last transaction, a whole number, or a "
                "dict from partition to its last transaction, or None for a stream without an end"
            )
        _check_end("until", until)


def _check_end(name: str, end: object) -> None:
    """Check the last transaction of a stream. It may be below -1: then the stream is empty."""
    if checked_id(name, end) >= _ID_LIMIT:
        raise ValueError(f"{name} is {end}: it must be {_ID_TEXT}, and below 2**63")


def _check_positions(
    name: str, positions: Mapping[object, object], check: Callable[[str, object], None]
) -> None:
    """Check a dict from partitions to positions, which is the argument ``name``."""
    for partition, position in positions.items():
        if not is_int(partition):
            raise TypeError(
                f"{name} has the key {shown(partition)}: its keys must be partitions, which are "
                "whole numbers"
            )
        check(f"{name}[{partition}]", position)


def check_req_id(req_id: object) -> None:
    """Raise TypeError if ``req_id`` is not a `ReqId`."""
    if not isinstance(req_id, ReqId):
        remedy = "that of an AppendUncertain is error.req_id"
        if isinstance(req_id, str):
            remedy = f"make one by ReqId.parse({shown(req_id)})"
        raise TypeError(f"req_id is {shown(req_id)}: it must be a waltz.ReqId; {remedy}")


def check_range(first_id: object, **limits: object) -> None:
    """Check a range of transactions that begins at ``first_id``.

    ``limits`` are the arguments that limit its length, by name. Each must be from 1 to `MOST_INT`,
    because it has 32 bits on the wire. Raises TypeError or ValueError.
    """
    if not 0 <= checked_id("first_id", first_id) < _ID_LIMIT:
        raise ValueError(f"first_id is {first_id}: transaction ids begin at 0, and are below 2**63")
    for name, number in limits.items():
        check_count(name, number, MOST_INT)


def check_drafts(drafts: object) -> None:
    """Raise TypeError if ``drafts`` is not a sequence of `Draft`.

    Another iterable is refused, because a generator may never end.
    """
    remedy = "it must be a list of waltz.Draft, such as [waltz.Draft(b'data')]"
    if not isinstance(drafts, Sequence):
        raise TypeError(f"drafts is {shown(drafts)}: {remedy}")
    for draft in drafts:
        if not isinstance(draft, Draft):
            raise TypeError(f"drafts has {shown(draft)}: {remedy}")


def check_build(build: object) -> None:
    """Raise TypeError if ``build`` cannot be called."""
    if not callable(build):
        raise TypeError(
            f"build is {shown(build)}: it must be a function that takes an Attempt and returns a "
            "Draft"
        )


def check_timeout(timeout: object) -> None:
    """Check the argument ``timeout`` of a call. Raises TypeError or ValueError.

    None is allowed. In most calls None stands for a timeout in the client's options. In some calls
    it means that there is no limit.
    """
    if timeout is not None:
        _check_seconds("timeout", timeout, ", or None")


def check_seconds(name: str, seconds: object, *, optional: bool = False) -> None:
    """Check that the argument ``name`` is a number of seconds from 0 on.

    If ``optional``, None is allowed and means no limit. Raises TypeError or ValueError.
    """
    if not optional:
        _check_seconds(name, seconds, "")
    elif seconds is not None:
        _check_seconds(name, seconds, ", or None for no limit")


def _check_seconds(name: str, seconds: object, or_none: str) -> None:
    """Check a number of seconds from 0 on. The text of the error ends with ``or_none``."""
    if not isinstance(seconds, int | float) or isinstance(seconds, bool):
        raise TypeError(f"{name} is {shown(seconds)}: it must be a number of seconds{or_none}")
    if seconds < 0 or math.isnan(seconds):
        raise ValueError(f"{name} is {seconds}: it must be a number of seconds, from 0 on")


def check_count(name: str, number: object, limit: int | None = None) -> None:
    """Check that the argument ``name`` is a whole number above 0, and at most ``limit``.

    Raises TypeError or ValueError.
    """
    bound = "from 1 on" if limit is None else f"from 1 to {limit}"
    if not is_int(number):
        raise TypeError(f"{name} is {shown(number)}: it must be a whole number {bound}")
    if number < 1 or (limit is not None and number > limit):
        raise ValueError(f"{name} is {number}: it must be a whole number {bound}")


def is_int(value: object) -> TypeGuard[int]:
    """Whether ``value`` is an int, but not a bool."""
    return isinstance(value, int) and not isinstance(value, bool)


def shown(value: object) -> str:
    """Return ``value`` for the text of an error: one line, shortened if it is long."""
    text = " ".join(repr(value).split())
    return text if len(text) <= _MOST_SHOWN else f"{text[: _MOST_SHOWN - 3]}..."
