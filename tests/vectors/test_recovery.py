"""Scripted recoveries of store sessions (spec/behaviour.md section 6).

Requests, positions and outcome of each replica, and the metadata after each arrival, must be those
of the vectors. In two cases 0.13.2 has a defect; the tests assert the safe behaviour instead. This
implementation sends one request more than 0.13.2: a replica that left earlier receives the new
session before its copies count (section 6.5, rule 3).
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from tests.vectors.scripted_recovery import Run

EMPTIED = ("storage older than ZooKeeper believes", "emptied replica connects first")
"""A case of 0.13.2 with its defect, and the same case here."""
DIVERGED_LATE = (
    "re-added replica with diverged records connects after the quorum",
    "replica with diverged records is added again and connects last",
)


def _without_first_mark(calls: list[list[Any]]) -> list[list[Any]]:
    """Return the calls without a SetLowWaterMark right after a cut if another one follows."""
    match calls:
        case [["truncate", _, end] as cut, ["setLowWaterMark", mark], *rest] if any(
            call[0] == "setLowWaterMark" for call in rest
        ):
            assert end <= mark == cut[1]
            return [cut, *rest]
        case _:
            return calls


def _cases(vectors: Path) -> list[dict[str, Any]]:
    cases: list[dict[str, Any]] = json.loads((vectors / "recovery.json").read_text())
    return cases


def _case(vectors: Path, names: tuple[str, str]) -> dict[str, Any]:
    (case,) = (case for case in _cases(vectors) if case["case"] in names)
    return case


def test_recovery_of_each_case_takes_the_steps_of_the_vectors(vectors: Path, own: bool) -> None:
    for case in _cases(vectors):
        if not own and case["case"] in (*EMPTIED, *DIVERGED_LATE):
            continue
        run = Run(case)
        for arrival, expected in zip(case["arrivals"], case["timeline"], strict=True):
            run.arrive(arrival)
            where = f"{case['case']}, after {expected['arrived']}"
            for name, outcome, max_id, mark in expected["replica_outcome_maxId_resolvedMark"]:
                assert run.outcome(name) == outcome, where
                if outcome != "not started":
                    assert (run.last[name], run.recovery.mark) == (max_id, mark), where
            assert run.states() == expected["metadata"]["replica_session_closingMark"], where
        for end in case["end"]:
            calls = run.calls[end["replica"]]
            expected_calls = end["calls"]
            if not own:
                calls = _without_first_mark(calls)
            assert calls == expected_calls, (case["case"], end["replica"])


def test_emptied_replica_copies_but_supports_no_mark(vectors: Path) -> None:
    """In 0.13.2 it counts once it has copied, which can cut committed transactions."""
    case = _case(vectors, EMPTIED)
    run = Run(case)
    emptied, first, second = case["arrivals"]
    run.arrive(emptied)
    run.arrive(first)
    assert run.last[emptied["replica"]] == first["maxTransactionId"], "it copies"
    assert run.recovery.mark is None, "one intact replica of three decides nothing"
    assert run.states() == {r: [s, m] for r, s, m in _before(case)}
    run.arrive(second)
    assert run.recovery.mark == max(first["maxTransactionId"], second["maxTransactionId"])
    assert run.outcome(emptied["replica"]) == "recovered"


def test_replica_that_was_added_again_is_cut_to_its_own_mark(vectors: Path) -> None:
    """In 0.13.2 it keeps diverged records if it connects after the metadata are written."""
    case = _case(vectors, DIVERGED_LATE)
    run = Run(case)
    for arrival in case["arrivals"]:
        run.arrive(arrival)
    late = case["arrivals"][-1]
    own_mark, mark = late["lowWaterMark"], run.recovery.mark
    assert run.calls[late["replica"]] == [
        ["truncate", own_mark, own_mark],
        ["setLowWaterMark", mark],
        ["append", own_mark + 1, mark],
    ]
    assert run.outcome(late["replica"]) == "recovered"


def _before(case: dict[str, Any]) -> list[tuple[str, int, Any]]:
    return [
        (r["replica"], r["sessionId"], r["closingHighWaterMark"])
        for r in case["replicaStatesBefore"]
    ]
