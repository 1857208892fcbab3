"""Check the flights that Spark has read from the log. No input or output."""

from __future__ import annotations

from dataclasses import dataclass, fields

from demo.flights import Totals


@dataclass(frozen=True, slots=True)
class Findings:
    """The totals of the flights in the log, and the number of faults of each kind.

    ``gaps`` counts the transaction ids that are missing in a partition. ``doubles`` counts the
    flights that were logged more than once. ``broken_links`` counts the flights that do not name
    the transaction of their aircraft's previous flight: a lock has failed to exclude another
    airport. ``disorder`` counts the flights that were logged after a flight of their aircraft that
    departs more than `demo.traffic.LEAD_MINUTES` later.
    """

    totals: Totals
    gaps: int
    doubles: int
    broken_links: int
    disorder: int


@dataclass(frozen=True, slots=True)
class Check:
    """The name of a value, its expected value, and the value that was found."""

    what: str
    wanted: int
    found: int

    @property
    def holds(self) -> bool:
        """Whether the check passes."""
        return self.wanted == self.found


# What `Check.what` says about each field of `Totals` and of `Findings`.
_TOTALS = {
    "flights": "flights",
    "aircraft": "aircraft",
    "distance": "miles",
    "dep_delay": "minutes of delay at departure",
    "arr_delay": "minutes of delay at arrival",
}
_FAULTS = {
    "gaps": "gaps in the logs",
    "doubles": "flights logged twice",
    "broken_links": "flights logged despite a lock",
    "disorder": "flights out of order",
}


def compare(source: Totals, findings: Findings) -> list[Check]:
    """Return the checks: the totals equal those of the source, and the log has no fault."""
    checks = [
        Check(_TOTALS[f.name], getattr(source, f.name), found=getattr(findings.totals, f.name))
        for f in fields(Totals)
    ]
    return checks + [
        Check(what, wanted=0, found=getattr(findings, name)) for name, what in _FAULTS.items()
    ]
