"""The checks of the flights that Spark has read from the log. Pure."""

from __future__ import annotations

from dataclasses import dataclass, fields

from demo.flights import Totals


@dataclass(frozen=True, slots=True)
class Findings:
    """The results of Spark's job.

    ``gaps`` counts ids that are missing between 0 and the last, in all partitions; ``doubles`` are
    flights that are there more than once. ``broken_links`` are flights that do not name the
    transaction of their aircraft's last flight: two airports have both believed to be next.
    ``disorder`` are flights logged after a much later one of their aircraft.
    """

    totals: Totals
    gaps: int
    doubles: int
    broken_links: int
    disorder: int


@dataclass(frozen=True, slots=True)
class Check:
    """An expected value, and the value that was found."""

    what: str
    wanted: int
    found: int

    @property
    def holds(self) -> bool:
        """Whether the check passes."""
        return self.wanted == self.found


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
    "broken_links": "flights logged past a lock",
    "disorder": "flights out of order",
}


def compare(source: Totals, findings: Findings) -> list[Check]:
    """Return the checks: the totals equal those of the source, and the log has no fault."""
    checks = [
        Check(_TOTALS[f.name], getattr(source, f.name), getattr(findings.totals, f.name))
        for f in fields(Totals)
    ]
    return checks + [Check(what, 0, getattr(findings, name)) for name, what in _FAULTS.items()]
