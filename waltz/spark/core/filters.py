"""Apply the filters that Spark pushes down to a read. Pure.

Filters on partition and transaction_id narrow the ranges that are read. Filters on header, and
lists of transaction ids, are applied to each row that was read, before Spark receives the row.
Spark applies all other filters itself.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from functools import reduce
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql.datasource import (
    EqualNullSafe,
    EqualTo,
    Filter,
    GreaterThan,
    GreaterThanOrEqual,
    In,
    IsNotNull,
    LessThan,
    LessThanOrEqual,
)

PUSHED_COLUMNS = frozenset(("partition", "transaction_id", "header"))
"""The columns whose filters are applied here; Spark applies the filters on other columns."""

# The bounds of 64-bit numbers.
_LOWEST, _HIGHEST = -(2**63), 2**63 - 1


@dataclass(frozen=True, slots=True)
class ColumnBounds:
    """The values that a column may have: from ``low`` to ``high``, both included.

    If ``among`` is not None, the values must also be in ``among``. No value is allowed if ``low``
    is above ``high``.
    """

    low: int = _LOWEST
    high: int = _HIGHEST
    among: frozenset[int] | None = None

    def __contains__(self, number: int) -> bool:
        return self.low <= number <= self.high and (self.among is None or number in self.among)

    def intersect(
        self, low: int = _LOWEST, high: int = _HIGHEST, among: frozenset[int] | None = None
    ) -> ColumnBounds:
        """Return the bounds of the values that both these bounds and the arguments allow."""
        if among is not None and self.among is not None:
            among &= self.among
        elif among is None:
            among = self.among
        if among is not None:
            # An empty set makes low at least 1 and high at most 0, so that no value is allowed.
            low, high = max(low, min(among, default=1)), min(high, max(among, default=0))
        return ColumnBounds(max(self.low, low), min(self.high, high), among)

    def mask(self, column: Any) -> Any:
        """Return an Arrow array that is true where ``column`` has an allowed number."""
        if self.low > self.high:
            return pa.array([False] * len(column), pa.bool_())
        if self.among is not None:
            allowed = sorted(number for number in self.among if number in self)
            return pc.is_in(column.cast(pa.int64()), value_set=pa.array(allowed, pa.int64()))
        wide = column.cast(pa.int64())
        return pc.and_(pc.greater_equal(wide, self.low), pc.less_equal(wide, self.high))


_EVERYTHING = ColumnBounds()


@dataclass(frozen=True, slots=True)
class RowFilter:
    """The bounds of each of `PUSHED_COLUMNS`; a column that is left out is unbounded."""

    columns: Mapping[str, ColumnBounds] = field(default_factory=dict)

    def bounds_of(self, column: str) -> ColumnBounds:
        """Return the bounds of ``column``."""
        return self.columns.get(column, _EVERYTHING)

    def restrict(self, pushed: Filter) -> RowFilter | None:
        """Return the filter that also requires ``pushed``, None if no RowFilter can express it."""
        # A filter that contains another filter, such as Not, has no attribute.
        column = ".".join(pushed.attribute) if hasattr(pushed, "attribute") else ""
        if column not in PUSHED_COLUMNS:
            return None
        narrower = _narrower(self.bounds_of(column), pushed)
        if narrower is None:
            return None
        return replace(self, columns={**self.columns, column: narrower})

    def rows(self, batch: Any) -> Any:
        """Return the rows of an Arrow batch that pass the filter.

        The ranges that are read satisfy the bounds of partition already, and also the lowest and
        the highest transaction_id. So only lists of transaction ids and the header are checked.
        """
        masks = []
        if self.bounds_of("transaction_id").among is not None:
            masks.append(self.bounds_of("transaction_id").mask(batch.column("transaction_id")))
        if "header" in self.columns:
            masks.append(self.bounds_of("header").mask(batch.column("header")))
        return batch.filter(reduce(pc.and_, masks)) if masks else batch


def narrow(row_filter: RowFilter, filters: Iterable[Filter]) -> tuple[RowFilter, list[Filter]]:
    """Return ``row_filter`` narrowed by ``filters``, and the filters that it cannot express.

    Spark must apply the filters that are not expressed.
    """
    not_expressed = []
    for pushed in filters:
        narrower = row_filter.restrict(pushed)
        if narrower is None:
            not_expressed.append(pushed)
        else:
            row_filter = narrower
    return row_filter, not_expressed


def _narrower(allowed: ColumnBounds, pushed: Filter) -> ColumnBounds | None:
    """Return ``allowed`` narrowed by ``pushed``, None if no ColumnBounds can express it."""
    if isinstance(pushed, IsNotNull):
        return allowed  # No column of the log is ever null.
    if isinstance(pushed, In):
        if not all(n is None or _is_number(n) for n in pushed.value):
            return None
        # A null in the list matches no row.
        return allowed.intersect(among=frozenset(n for n in pushed.value if n is not None))
    value: Any = getattr(pushed, "value", None)
    if not _is_number(value):
        return None
    match pushed:
        case EqualTo() | EqualNullSafe():
            return allowed.intersect(value, value)
        case GreaterThan():
            return allowed.intersect(low=value + 1)
        case GreaterThanOrEqual():
            return allowed.intersect(low=value)
        case LessThan():
            return allowed.intersect(high=value - 1)
        case LessThanOrEqual():
            return allowed.intersect(high=value)
    return None


def _is_number(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)
