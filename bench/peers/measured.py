"""The figures of a run at a peer, and the interface of a peer. Pure."""

from __future__ import annotations

import abc
from collections.abc import Mapping
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass

RECORDS = {
    (1, 1): 3_000,
    (8, 5): 30_000,
    (32, 5): 40_000,
    (128, 1): 30_000,
    (1000, 1): 30_000,
    (4, 100): 60_000,
}
"""The shapes (clients and window), each with the number of records of a run: a few seconds."""
MOST_SECONDS = 3.0
"""How long a run lasts at most at the peers whose load generators can end a run early.

Otherwise a peer with a tenth of the rate of the others would take most of the time of the whole
measurement.
"""
READ_RECORDS = 300_000
"""The number of records of the log that is read."""
WARM_UP_SECONDS = 60.0
"""How long a peer in Java gets load before its first run, so that its code is compiled by then."""


@dataclass(frozen=True, slots=True)
class PeerLoad:
    """One run: ``records`` of ``size`` bytes, from ``clients`` that keep ``window`` appends open.

    With ``locks``, each append is refused if its writer has not seen a conflicting record that was
    appended before (`Description.lock`).
    """

    clients: int
    window: int
    size: int
    records: int
    locks: bool

    @property
    def shape(self) -> str:
        """The shape as text, such as ``8 x 5``."""
        return f"{self.clients} x {self.window}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Run:
    """The result of one run. ``client_seconds`` and ``server_seconds`` are CPU times."""

    seconds: float
    records: int
    client_seconds: float
    server_seconds: float = 0.0

    @property
    def rate(self) -> float:
        """Records per second."""
        return self.records / self.seconds

    @property
    def cpu_us(self) -> float:
        """Microseconds of CPU per record, of all servers and clients together."""
        return (self.client_seconds + self.server_seconds) / self.records * 1e6


@dataclass(frozen=True, slots=True, kw_only=True)
class ReadRun(Run):
    """The result of reading a log from its start to its end by one consumer."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Measured(Run):
    """The result of one run of appends. Only records that the peer has acknowledged are counted.

    The latencies are those from the call of a client to its acknowledgement.
    """

    p50_ms: float
    p99_ms: float


class PeerMissing(Exception):
    """A program of a peer is not installed, or cannot be built; the text says what is missing.

    The text stands in the report: it has no path of a machine.
    """


@dataclass(frozen=True, slots=True)
class Description:
    """A peer in words. ``durability`` says what is on disk when a record is acknowledged."""

    name: str
    version: str
    durability: str
    lock: str | None
    """What refuses an append of a run with locks; None if the peer cannot refuse appends."""


class RunningPeer(abc.ABC):
    """A peer whose three replicas run."""

    @abc.abstractmethod
    async def append(self, load: PeerLoad) -> Measured:
        """Append the records of ``load`` to a new log. Raises CommandFailed."""

    async def read(self, size: int, records: int) -> Mapping[str, ReadRun]:
        """Fill a log with ``records`` records of ``size`` bytes, and read it.

        Returns a run for each way of reading, by its name. The result is empty for a peer whose
        reads are not measured. Raises CommandFailed.
        """
        del size, records
        return {}

    async def warm_up(self, scale: float) -> None:
        """Put load on a peer that gets faster with time, for `WARM_UP_SECONDS` times ``scale``."""
        del scale


class Peer(abc.ABC):
    """A system that can be measured."""

    @abc.abstractmethod
    async def describe(self) -> Description:
        """Describe the installed version. Raises PeerMissing."""

    @abc.abstractmethod
    def start(self) -> AbstractAsyncContextManager[RunningPeer]:
        """Start three replicas on this machine; the end of the context stops them."""
