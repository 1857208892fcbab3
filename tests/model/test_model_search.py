"""Test that the search finds every bug of the rule that can be switched on, and none without."""

from __future__ import annotations

import pytest

from tests.model.bugs import Bug
from tests.model.configurations import Configuration, full, quick, with_bug
from tests.model.search import search

_LONGEST_TRACE = 26


@pytest.mark.parametrize("configuration", quick(), ids=lambda one: one.name)
def test_rule_within_small_bounds_holds_in_every_state(configuration: Configuration) -> None:
    found = search(configuration.bounds)
    assert found.broken is None, "\n".join((found.broken, *found.trace))
    assert found.complete


_LATE = (Bug.OPENS_OLDER_TAIL, Bug.NEW_VOTES)
"""Bugs whose traces have so many steps that the search takes long."""

_BUGS = [pytest.param(bug, marks=pytest.mark.slow if bug in _LATE else ()) for bug in Bug]


@pytest.mark.parametrize("bug", _BUGS)
def test_bug_that_is_switched_on_is_found_with_a_short_trace(bug: Bug) -> None:
    found = search(with_bug(bug))
    assert found.broken is not None
    assert len(found.trace) <= _LONGEST_TRACE


def test_search_reaches_every_kind_of_step() -> None:
    found = search(quick()[0].bounds)
    kinds = {"begins", "joins", "mark", "cut", "copy", "store", "appends", "restarts"}
    assert kinds <= set(found.actions)


@pytest.mark.slow
def test_rule_holds_in_every_state_with_crashes_and_restarts() -> None:
    chosen = next(one for one in full(2) if one.name == "crashes and restarts")
    found = search(chosen.bounds)
    assert (found.broken, found.complete) == (None, True)
