"""The notation of partitions, transaction ids and locks in commands and messages. Pure."""

from __future__ import annotations

import re
from collections.abc import Iterable

from waltz.protocol.locks import Lock

_RANGE = re.compile(r"(\d+)(?:-(\d+))?", re.ASCII)
_OPEN_RANGE = re.compile(r"(\d+)-", re.ASCII)
_LOCK = re.compile(r"(.+):(-?\d+)", re.ASCII | re.DOTALL)
MOST_PARTITIONS = 1 << 20
"""The largest number of partitions of a cluster, and of one range on a command line.

The numbers of a much longer range would not fit into the memory."""
LAST_ID = (1 << 63) - 1
"""The largest id of a transaction: the protocol and the files have 64 bits for it."""


def parse_range(text: str) -> tuple[int, int]:
    """Return the first and the last number of a range such as ``0-6`` or ``7``.

    Raises ValueError.
    """
    match = _RANGE.fullmatch(text.strip())
    if match is None:
        raise ValueError(f"{text!r} is neither a number nor a range like 0-6")
    first = int(match[1])
    last = first if match[2] is None else int(match[2])
    if last < first:
        raise ValueError(f"the range {text!r} ends before it begins")
    return first, last


def parse_ids(text: str) -> tuple[int, int | None]:
    """Return the first and the last id of a range such as ``0-6``, ``7`` or ``5-``.

    The last id of a range without an end, such as ``5-``, is None. Raises ValueError, also for
    numbers that are too large for an id.
    """
    open_end = _OPEN_RANGE.fullmatch(text.strip())
    first, last = parse_range(text) if open_end is None else (int(open_end[1]), None)
    if max(first, last or 0) > LAST_ID:
        raise ValueError(f"{text!r} names an id above {LAST_ID}, the largest one")
    return first, last


def parse_partitions(text: str) -> tuple[int, ...]:
    """Return the partitions of a text such as ``0-6,7,10-16``, each once, in ascending order.

    Raises ValueError.
    """
    partitions: set[int] = set()
    for part in text.split(","):
        first, last = parse_range(part)
        if last - first >= MOST_PARTITIONS:
            raise ValueError(f"{part!r} names more than {MOST_PARTITIONS} partitions")
        partitions.update(range(first, last + 1))
    return tuple(sorted(partitions))


def format_partitions(partitions: Iterable[int]) -> str:
    """Return the shortest text from which `parse_partitions` reads ``partitions``.

    Return ``-`` if there are no partitions.
    """
    # Consecutive partitions are one run: a list with the first and the last of them.
    runs: list[list[int]] = []
    for partition in sorted(set(partitions)):
        if runs and partition == runs[-1][1] + 1:
            runs[-1][1] = partition
        else:
            runs.append([partition, partition])
    texts = (f"{first}" if first == last else f"{first}-{last}" for first, last in runs)
    return ",".join(texts) or "-"


def parse_lock(text: str) -> Lock:
    """Return the lock of a text such as ``account:17`` (name and number). Raises ValueError."""
    match = _LOCK.fullmatch(text)
    if match is None:
        raise ValueError(f"{text!r} is not a lock; it must be like account:17")
    number = int(match[2])
    if not -(1 << 63) <= number < 1 << 63:
        raise ValueError(f"{text!r}: the number of a lock has 64 bits")
    return Lock(match[1], number)
