"""The damaged records of a storage, as messages contain them (spec/wire.md section 11). Pure."""

from __future__ import annotations

import struct
from dataclasses import astuple, dataclass
from typing import Final

from waltz.protocol.fields import INT, Reader


@dataclass(frozen=True, slots=True)
class DamagedRange:
    """The records of a partition from ``first_id`` to ``last_id`` are damaged."""

    partition: int
    first_id: int
    last_id: int

    @property
    def count(self) -> int:
        """How many records the range has."""
        return self.last_id - self.first_id + 1


_RANGE = struct.Struct(">iqq")
"""A `DamagedRange`."""


class _RangesCodec:
    """An int count, then that many `DamagedRange`."""

    def write(self, out: list[bytes], value: tuple[DamagedRange, ...]) -> None:
        INT.write(out, len(value))
        out += (_RANGE.pack(*astuple(damaged)) for damaged in value)

    def read(self, reader: Reader) -> tuple[DamagedRange, ...]:
        return tuple(
            DamagedRange(*reader.take_numbers(_RANGE))
            for _ in range(reader.take_count(_RANGE.size))
        )


RANGES: Final = _RangesCodec()
"""The codec of several damaged ranges."""
