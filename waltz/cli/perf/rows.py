"""What the verbs that put load on a cluster show. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from waltz.cli.client.validation import Validation
from waltz.cli.rows import Rows, Shown, pairs

_MOST_PROBLEMS = 100


def throughput(transactions: int, num_bytes: int, seconds: float) -> dict[str, Any]:
    """Return counts and rates; MB are millions of bytes of data."""
    rate = transactions / seconds if seconds > 0 else 0.0
    megabytes = num_bytes / 1e6
    return {
        "transactions": transactions,
        "megabytes": round(megabytes, 3),
        "seconds": round(seconds, 3),
        "transactions_per_second": round(rate, 1),
        "megabytes_per_second": round(megabytes / seconds if seconds > 0 else 0.0, 3),
    }


def produced(num_bytes: int, seconds: float, durations: Sequence[float], attempts: int) -> Shown:
    """Return what is shown of appends; ``durations`` in seconds, one for each."""
    ordered = sorted(durations)
    count = len(ordered)
    value = throughput(count, num_bytes, seconds) | {
        "retries_per_transaction": round((attempts - count) / count, 3) if count else 0.0,
        "mean_ms": _ms(sum(ordered) / count if count else 0.0),
        "p50_ms": _ms(_quantile(ordered, 0.5)),
        "p99_ms": _ms(_quantile(ordered, 0.99)),
        "max_ms": _ms(ordered[-1] if ordered else 0.0),
    }
    return Shown(value, (pairs("Appended", value),))


def consumed(transactions: int, num_bytes: int, seconds: float) -> Shown:
    """Return what is shown of reading."""
    value = throughput(transactions, num_bytes, seconds)
    return Shown(value, (pairs("Read", value),))


def validated(found: Mapping[int, Validation], seconds: float) -> Shown:
    """Return what is shown of witnesses of order and locks, by partition."""
    problems = [problem for each in found.values() for problem in each.problems]
    witnesses = sum(each.witnesses for each in found.values())
    head = {
        "passed": not problems,
        "transactions": witnesses,
        "others": sum(each.others for each in found.values()),
        "seconds": round(seconds, 3),
    }
    tables = [pairs("Validated", head)]
    if problems:
        shown = problems[:_MOST_PROBLEMS]
        tables.append(Rows("Problems", ("transaction", "what"), [p.split(" ", 1) for p in shown]))
    return Shown({**head, "problems": problems}, tuple(tables))


def _quantile(ordered: Sequence[float], q: float) -> float:
    return ordered[min(int(q * len(ordered)), len(ordered) - 1)] if ordered else 0.0


def _ms(seconds: float) -> float:
    return round(1000 * seconds, 3)
