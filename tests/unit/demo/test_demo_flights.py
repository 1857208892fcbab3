"""Test the demo's data, its timeline, the state of an airport, and the comparison."""

from __future__ import annotations

import json
import signal
import sys
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

import demo.__main__
import waltz
from demo import flights
from demo.checks import Findings, compare
from demo.fleet import Fleet
from demo.flights import NO_AIRCRAFT, Flight, Totals
from demo.timeline import Timeline
from waltz import Lock

FLIGHT = Flight(100, 7, "UA", 1545, "N14228", "EWR", "IAH", 2, None, 227, 1400)
TOTALS = Totals(flights=3, aircraft=2, distance=10, dep_delay=-1, arr_delay=5)
FAULTLESS = Findings(TOTALS, gaps=0, doubles=0, broken_links=0, disorder=0)


@pytest.fixture(scope="module")
def year() -> flights.Flights:
    return flights.load()


def test_flights_whole_year_is_in_order(year: flights.Flights) -> None:
    departures = [flight.departure for flight in year.flights]
    assert departures == sorted(departures)
    assert len(departures) == year.totals.flights == 336_776
    assert max(flight.aircraft for flight in year.flights) == year.totals.aircraft


def test_flights_totals_equal_the_sums_over_all_flights(year: flights.Flights) -> None:
    assert year.totals.distance == sum(flight.distance for flight in year.flights)
    assert year.totals.dep_delay == sum(flight.dep_delay or 0 for flight in year.flights)
    assert year.totals.arr_delay == sum(flight.arr_delay or 0 for flight in year.flights)


def test_flights_without_tail_number_are_cancelled_and_have_no_lock(year: flights.Flights) -> None:
    without = [flight for flight in year.flights if flight.aircraft == NO_AIRCRAFT]
    assert without
    for flight in without:
        assert flight.tailnum is None
        assert flight.dep_delay is None
        assert flight.locks() == ()


def test_flights_loaded_with_a_limit_are_the_first_of_the_year(year: flights.Flights) -> None:
    few = flights.load(100)
    assert few.totals.flights == 100
    # The numbers of aircraft are positions among the loaded tail numbers: they differ.
    without_numbers = [flight._replace(aircraft=0) for flight in few.flights]
    assert without_numbers == [flight._replace(aircraft=0) for flight in year.flights[:100]]


def test_flight_record_round_trip_keeps_all_fields() -> None:
    record = json.loads(FLIGHT.record(41))
    assert record == {**FLIGHT._asdict(), "previous": 41}
    assert FLIGHT.locks() == (Lock("aircraft", 7),)


def test_flights_every_airline_has_a_name(year: flights.Flights) -> None:
    assert {flight.carrier for flight in year.flights} <= flights.airline_names().keys()


@given(st.lists(st.integers(0, 500), min_size=1, max_size=40), st.integers(0, 100), st.data())
def test_timeline_departures_do_not_overtake_open_appends(
    departures: list[int], lead: int, data: st.DataObject
) -> None:
    departures.sort()
    timeline = Timeline(departures, lead)
    open_ = dict(enumerate(departures))
    while open_:
        oldest = min(open_.values())
        due = [n for n, departure in open_.items() if timeline.may_log(departure)]
        assert due == [n for n, departure in open_.items() if departure <= oldest + lead]
        before = timeline.horizon
        number = data.draw(st.sampled_from(due))
        del open_[number]
        assert timeline.logged(number) or timeline.horizon == before
    assert timeline.horizon is None
    assert timeline.may_log(10**9)


def test_airport_tracks_last_transaction_of_each_aircraft() -> None:
    fleet = Fleet()
    for transaction_id, aircraft in enumerate([5, 6, 5, NO_AIRCRAFT]):
        fleet.apply(transaction_id, aircraft)
    assert fleet.position == 3
    assert [fleet.last(a) for a in (5, 6, 7, NO_AIRCRAFT)] == [2, 1, None, None]


def test_checks_logged_flights_pass() -> None:
    checks = compare(TOTALS, FAULTLESS)
    assert all(check.holds for check in checks)


@pytest.mark.parametrize(
    "findings",
    [
        *(
            replace(FAULTLESS, totals=replace(TOTALS, **{name: 4}))
            for name in ("flights", "aircraft", "distance", "dep_delay", "arr_delay")
        ),
        replace(FAULTLESS, gaps=1),
        replace(FAULTLESS, doubles=1),
        replace(FAULTLESS, broken_links=1),
        replace(FAULTLESS, disorder=1),
    ],
)
def test_one_wrong_value_fails_one_check(findings: Findings) -> None:
    checks = compare(TOTALS, findings)
    assert [check.holds for check in checks].count(False) == 1


def test_demo_that_fails_shows_the_errors_in_nested_groups(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def fail(*_: object) -> int:
        lost = ExceptionGroup("unhandled errors", [waltz.WaltzError("no answer in 30 s")])
        raise ExceptionGroup("unhandled errors", [lost])

    monkeypatch.setattr(demo.__main__, "_run", fail)
    monkeypatch.setattr(signal, "signal", lambda *_: None)
    monkeypatch.setattr(sys, "argv", ["demo"])
    assert demo.__main__.main() == 1
    assert "The flights could not be logged: no answer in 30 s" in capsys.readouterr().out
