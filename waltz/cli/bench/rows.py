"""How the results of ``waltz bench`` are shown."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Annotated

from waltz.cli.bench.validation import Validation
from waltz.cli.rows import Rendering, Rows, column, record

_MAX_SHOWN_PROBLEMS = 100
"""How many problems the table of problems has at most; the value for scripts has all of them."""


@dataclass(frozen=True, slots=True)
class Throughput:
    """Counts and rates. A megabyte is a million bytes of the data of transactions."""

    transactions: int
    megabytes: float
    seconds: float
    transactions_per_second: float
    megabytes_per_second: float


@dataclass(frozen=True, slots=True)
class AppendThroughput(Throughput):
    """The throughput of appends, and how many milliseconds an append took.

    A retry is a new attempt after an append was refused because of a lock.
    """

    retries_per_transaction: float
    mean_ms: float
    p50_ms: float
    p99_ms: float
    max_ms: float


@dataclass(frozen=True, slots=True)
class ValidationResult:
    """The outcome of the check that `waltz.cli.bench.validation` describes.

    ``transactions`` counts the checked transactions, ``others`` the transactions of other
    producers.
    """

    passed: bool
    transactions: int
    others: int
    seconds: float
    problems: Annotated[tuple[str, ...], column(in_table=False)]


def _throughput_fields(
    transactions: int, num_bytes: int, seconds: float
) -> tuple[int, float, float, float, float]:
    """Return the fields of `Throughput` in their order."""
    rate = transactions / seconds if seconds > 0 else 0.0
    megabytes = num_bytes / 1e6
    return (
        transactions,
        round(megabytes, 3),
        round(seconds, 3),
        round(rate, 1),
        round(megabytes / seconds if seconds > 0 else 0.0, 3),
    )


def render_appends(
    num_bytes: int, seconds: float, durations: Sequence[float], attempts: int
) -> Rendering:
    """Return the rendering of appends with ``num_bytes`` bytes of data together.

    ``durations`` has the seconds of each append. ``attempts`` is the sum of the attempts of all
    appends. The whole load took ``seconds``.
    """
    ordered = sorted(durations)
    count = len(ordered)
    num_retries = attempts - count
    appended = AppendThroughput(
        *_throughput_fields(count, num_bytes, seconds),
        retries_per_transaction=round(num_retries / count, 3) if count else 0.0,
        mean_ms=_ms(sum(ordered) / count if count else 0.0),
        p50_ms=_ms(_quantile(ordered, 0.5)),
        p99_ms=_ms(_quantile(ordered, 0.99)),
        max_ms=_ms(ordered[-1] if ordered else 0.0),
    )
    return record("Appended", appended)


def render_reads(transactions: int, num_bytes: int, seconds: float) -> Rendering:
    """Return the rendering of reads: how many transactions and bytes of data in ``seconds``."""
    return record("Read", Throughput(*_throughput_fields(transactions, num_bytes, seconds)))


def render_validation(validations: Mapping[int, Validation], seconds: float) -> Rendering:
    """Return the rendering of the checked transactions of all partitions."""
    problems = tuple(
        problem for validation in validations.values() for problem in validation.problems
    )
    result = ValidationResult(
        passed=not problems,
        transactions=sum(validation.checked for validation in validations.values()),
        others=sum(validation.others for validation in validations.values()),
        seconds=round(seconds, 3),
        problems=problems,
    )
    rendering = record("Validated", result)
    if not problems:
        return rendering
    # The text of a problem begins with the partition and id of its transaction, such as 0/17.
    cells = [problem.split(" ", 1) for problem in problems[:_MAX_SHOWN_PROBLEMS]]
    return Rendering(
        rendering.value, (*rendering.tables, Rows("Problems", ("transaction", "what"), cells))
    )


def _quantile(ordered: Sequence[float], q: float) -> float:
    """Return the value below which the share ``q`` of the ``ordered`` values lies; 0 if empty."""
    if not ordered:
        return 0.0
    index = min(int(q * len(ordered)), len(ordered) - 1)
    return ordered[index]


def _ms(seconds: float) -> float:
    """Return ``seconds`` in milliseconds, rounded to microseconds."""
    return round(1000 * seconds, 3)
