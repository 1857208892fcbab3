"""The switches and the state of a partition, as messages of the admin port have them. Pure.

The wire form is that of spec/wire.md section 11. A partition has two *switches* on a storage node:
one allows servers to read it, the other allows them to write it. A partition is *available* if both
are on.
"""

from __future__ import annotations

import struct
from dataclasses import astuple, dataclass
from enum import IntEnum

from waltz.protocol.fields import BYTE, INT, MalformedMessage, Reader


class Switch(IntEnum):
    """The two switches of a partition."""

    READ = 1
    WRITE = 2


@dataclass(frozen=True, slots=True)
class PartitionState:
    """The state of one assigned partition.

    The session and its marks are those that `storage.LastSessionInfoResponse` describes.
    ``max_transaction_id`` is -1 if the log is empty. ``size_bytes`` is the size of the partition's
    segment files, including preallocated space. A partition that the storage refuses, because its
    files are damaged, has the last id -1, the size 0, and both switches off.
    """

    partition: int
    session_id: int
    low_water_mark: int
    local_low_water_mark: int
    max_transaction_id: int
    size_bytes: int
    readable: bool
    writable: bool

    @property
    def available(self) -> bool:
        """Whether servers can read and write the partition."""
        return self.readable and self.writable


class _SwitchCodec:
    """One byte, the number of a `Switch`."""

    def write(self, out: list[bytes], value: Switch) -> None:
        """Append the encoded switch to ``out``."""
        BYTE.write(out, value)

    def read(self, reader: Reader) -> Switch:
        number = BYTE.read(reader)
        try:
            return Switch(number)
        except ValueError:
            raise MalformedMessage(f"unknown switch: {number}") from None


_STATE = struct.Struct(">iqqqqqbb")
"""A `PartitionState`."""


class _StatesCodec:
    """An int count, then that many `PartitionState`."""

    def write(self, out: list[bytes], value: tuple[PartitionState, ...]) -> None:
        INT.write(out, len(value))
        out += (_STATE.pack(*astuple(state)) for state in value)

    def read(self, reader: Reader) -> tuple[PartitionState, ...]:
        states = []
        for _ in range(reader.take_count(_STATE.size)):
            partition, session, low, local, last, size, read, write = reader.take_numbers(_STATE)
            states.append(
                PartitionState(partition, session, low, local, last, size, read == 1, write == 1)
            )
        return tuple(states)


SWITCH = _SwitchCodec()
"""The codec of a switch."""

STATES = _StatesCodec()
"""The codec of the states of several partitions."""
