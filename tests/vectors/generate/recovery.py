"""Generate recovery.json: scripted recoveries, with each request to each replica."""

from __future__ import annotations

from typing import Any

from tests.vectors.scripted_recovery import Run

_SESSION = 10
_GENERATION = 3
_ACTIVE = (9, "UNRESOLVED")

State = tuple[int, int | str]
Arrival = tuple[str, int, int, int, int]
Case = tuple[str, dict[str, State], list[Arrival], list[str]]

_THREE: dict[str, State] = {"a:1": _ACTIVE, "b:2": _ACTIVE, "c:3": _ACTIVE}
_LEFT: dict[str, State] = {"a:1": _ACTIVE, "b:2": _ACTIVE, "c:3": (7, 34)}

_CASES: list[Case] = [
    # name, states before, arrivals (replica, session, low-water mark, local mark, last id), absent
    (
        "new partition",
        {},
        [("a:1", -1, -1, -1, -1), ("b:2", -1, -1, -1, -1), ("c:3", -1, -1, -1, -1)],
        [],
    ),
    (
        "three equal replicas",
        _THREE,
        [("a:1", 9, 30, 30, 36), ("b:2", 9, 30, 30, 36), ("c:3", 9, 30, 30, 36)],
        [],
    ),
    (
        "two equal replicas, one absent",
        _THREE,
        [("a:1", 9, 30, 30, 36), ("b:2", 9, 30, 30, 36)],
        ["c:3"],
    ),
    (
        "longest replica connects first",
        _THREE,
        [("a:1", 9, 30, 30, 38), ("b:2", 9, 30, 30, 37), ("c:3", 9, 30, 30, 36)],
        [],
    ),
    (
        "longest replica connects last",
        _THREE,
        [("a:1", 9, 30, 30, 36), ("b:2", 9, 30, 30, 37), ("c:3", 9, 30, 30, 38)],
        [],
    ),
    ("one of three replicas: undecidable", _THREE, [("a:1", 9, 30, 30, 36)], ["b:2", "c:3"]),
    (
        "two different replicas, one absent: the shorter one copies first",
        _THREE,
        [("a:1", 9, 30, 30, 38), ("b:2", 9, 30, 30, 36)],
        ["c:3"],
    ),
    (
        "copy of more than one batch",
        _THREE,
        [("a:1", 9, -1, -1, 50), ("b:2", 9, -1, -1, 5), ("c:3", 9, -1, -1, 50)],
        [],
    ),
    (
        "replica that lags through the session does not vote",
        _THREE,
        [("c:3", 9, 30, 21, 24), ("a:1", 9, 30, 30, 36), ("b:2", 9, 30, 30, 36)],
        [],
    ),
    (
        "replica that left earlier connects first",
        _LEFT,
        [("c:3", 7, 30, 30, 45), ("a:1", 9, 40, 40, 42), ("b:2", 9, 40, 40, 42)],
        [],
    ),
    (
        "replica that left earlier connects last",
        _LEFT,
        [("a:1", 9, 40, 40, 42), ("b:2", 9, 40, 40, 42), ("c:3", 7, 30, 30, 45)],
        [],
    ),
    (
        "emptied replica connects first",
        _THREE,
        [("c:3", -1, -1, -1, -1), ("a:1", 9, 30, 30, 36), ("b:2", 9, 30, 30, 36)],
        [],
    ),
    (
        "new fourth replica connects first",
        _THREE,
        [
            ("d:4", -1, -1, -1, -1),
            ("a:1", 9, 30, 30, 36),
            ("b:2", 9, 30, 30, 36),
            ("c:3", 9, 30, 30, 36),
        ],
        [],
    ),
    (
        "replica with diverged records is added again and connects first",
        _THREE,
        [
            ("d:4", 2, 20, 20, 35),
            ("a:1", 9, 30, 30, 36),
            ("b:2", 9, 30, 30, 36),
            ("c:3", 9, 30, 30, 36),
        ],
        [],
    ),
    (
        "replica with diverged records is added again and connects last",
        _THREE,
        [
            ("a:1", 9, 30, 30, 36),
            ("b:2", 9, 30, 30, 36),
            ("c:3", 9, 30, 30, 36),
            ("d:4", 2, 20, 20, 35),
        ],
        [],
    ),
    (
        "two of three replicas replaced: the last quorum is unreachable",
        _THREE,
        [("a:1", 9, 30, 30, 36), ("d:4", -1, -1, -1, -1), ("e:5", -1, -1, -1, -1)],
        [],
    ),
    (
        "five replicas, two absent",
        {**_THREE, "d:4": _ACTIVE, "e:5": _ACTIVE},
        [("a:1", 9, 30, 30, 36), ("b:2", 9, 30, 30, 37), ("c:3", 9, 30, 30, 36)],
        ["d:4", "e:5"],
    ),
]


def recovery() -> list[dict[str, Any]]:
    """Return recovery.json."""
    return [_case(*case) for case in _CASES]


def _case(
    name: str, before: dict[str, State], arrivals: list[Arrival], absent: list[str]
) -> dict[str, Any]:
    case: dict[str, Any] = {
        "case": name,
        "sessionId": _SESSION,
        "generation": _GENERATION,
        "quorum": (len(arrivals) + len(absent)) // 2 + 1,
        "replicaStatesBefore": [
            {"replica": replica, "sessionId": session, "closingHighWaterMark": mark}
            for replica, (session, mark) in before.items()
        ],
        "arrivals": [
            {
                "replica": replica,
                "lastSessionId": session,
                "lowWaterMark": mark,
                "localLowWaterMark": local,
                "maxTransactionId": last,
            }
            for replica, session, mark, local, last in arrivals
        ],
        "assignedButAbsent": absent,
    }
    run = Run(case)
    case["timeline"] = [_after(run, arrival, case) for arrival in case["arrivals"]]
    case["end"] = [
        {
            "replica": replica,
            "outcome": run.outcome(replica),
            "maxTransactionId": run.last[replica],
            "calls": run.calls[replica],
        }
        for replica, *_ in arrivals
    ]
    return case


def _after(run: Run, arrival: dict[str, Any], case: dict[str, Any]) -> dict[str, Any]:
    run.arrive(arrival)
    replicas = [each["replica"] for each in case["arrivals"]] + case["assignedButAbsent"]
    return {
        "arrived": arrival["replica"],
        "replica_outcome_maxId_resolvedMark": [
            [name, run.outcome(name), run.last.get(name), run.recovery.mark] for name in replicas
        ],
        "metadata": {
            "generation": run.metadata.generation,
            "sessionId": run.metadata.session_id,
            "replica_session_closingMark": run.states(),
        },
    }
