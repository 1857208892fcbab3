"""Recovery of store sessions against scripted runs of the reference (spec/behaviour.md section 6).

Replicas arrive one by one; between arrivals everything that can be done is done. Each replica's
calls, positions and outcome, and the metadata after each arrival, must be those of the vectors.
Two cases record defects of the reference; there the safe behaviour is asserted instead. One call
more than the reference's is made on purpose: a replica that left earlier is given the new session
before it is given copies that count.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from waltz.metadata.core.formats import UNRESOLVED, PartitionMetadata, ReplicaState
from waltz_server.core.replication.recovery import Copy, Mark, Measure, Recovery, Step, Truncate

WIPED_COUNTS = "storage older than ZooKeeper believes"
DIVERGED_LATE = "re-added replica with diverged records connects after the quorum"


class Run:
    """A recovery over replicas that do at once what they are told."""

    def __init__(self, case: dict[str, Any]) -> None:
        before = {
            r["replica"]: ReplicaState(r["sessionId"], _mark(r["closingHighWaterMark"]))
            for r in case["replicaStatesBefore"]
        }
        assigned = tuple(
            [a["replica"] for a in case["arrivals"]]
            + [name for name in case["assignedButAbsent"] if name in before or not before]
        )
        self.metadata = PartitionMetadata(case["generation"], case["sessionId"], before)
        self.recovery = Recovery(case["sessionId"], case["generation"], assigned, before, 20)
        self.quorum = case["quorum"]
        assert self.recovery.quorum == self.quorum
        self.last: dict[str, int] = {}
        self.calls: dict[str, list[list[Any]]] = {}

    def arrive(self, arrival: dict[str, Any]) -> None:
        name = arrival["replica"]
        self.last[name] = arrival["maxTransactionId"]
        self.calls[name] = []
        self.recovery.introduced(
            name,
            arrival["lastSessionId"],
            arrival["lowWaterMark"],
            arrival["localLowWaterMark"],
        )
        while steps := self.recovery.steps():
            for replica, step in steps:
                self._perform(replica, step)
                self._write_metadata()

    def _perform(self, name: str, step: Step) -> None:
        calls = self.calls[name]
        match step:
            case Measure():
                calls.append(["getMaxTransactionId", self.last[name]])
                self.recovery.measured(name, self.last[name])
            case Truncate(to):
                self.last[name] = min(self.last[name], to)
                calls.append(["truncate", to, self.last[name]])
                self.recovery.cut(name, self.last[name])
            case Mark(mark):
                calls.append(["setLowWaterMark", mark])
                self.recovery.marked(name)
            case Copy(usher, first, count):
                assert first == self.last[name] + 1
                assert first + count - 1 <= self.last[usher]
                self.last[name] = first + count - 1
                calls.append(["append", first, self.last[name]])
                self.recovery.copied(name, self.last[name])

    def _write_metadata(self) -> None:
        if len(self.recovery.recovered()) >= self.quorum:
            new = self.recovery.metadata()
            if new != self.metadata:
                self.metadata = new
                self.recovery.metadata_written(new)

    def outcome(self, name: str) -> str:
        if name not in self.calls:
            return "not started"
        if name not in self.recovery.recovered():
            return "recovering"
        done = len(self.recovery.recovered()) >= self.quorum
        return "recovered" if done else "recovered, waiting for a quorum"

    def states(self) -> dict[str, list[Any]]:
        return {
            name: [s.session_id, "UNRESOLVED" if s.closing_mark == UNRESOLVED else s.closing_mark]
            for name, s in self.metadata.replicas.items()
        }


def _mark(value: int | str) -> int:
    return UNRESOLVED if value == "UNRESOLVED" else int(value)


def _without_entry(calls: list[list[Any]]) -> list[list[Any]]:
    """Return the calls without the session's entry at the mark of the cut, if another follows."""
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


def test_scripted_recoveries(vectors: Path) -> None:
    for case in _cases(vectors):
        if case["case"] in (WIPED_COUNTS, DIVERGED_LATE):
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
            calls = _without_entry(run.calls[end["replica"]])
            assert calls == end["calls"], (case["case"], end["replica"])


def test_a_wiped_replica_supports_nothing(vectors: Path) -> None:
    """Defect: the reference counts it once it has copied, and can cut committed transactions."""
    case = next(c for c in _cases(vectors) if c["case"] == WIPED_COUNTS)
    run = Run(case)
    wiped, first, second = case["arrivals"]
    run.arrive(wiped)
    run.arrive(first)
    assert run.last[wiped["replica"]] == first["maxTransactionId"], "it copies all the same"
    assert run.recovery.mark is None, "one intact replica of three decides nothing"
    assert run.states() == {r: [s, m] for r, s, m in _before(case)}
    run.arrive(second)
    assert run.recovery.mark == max(first["maxTransactionId"], second["maxTransactionId"])
    assert run.outcome(wiped["replica"]) == "recovered"


def test_a_re_added_replica_is_cut_to_its_own_mark(vectors: Path) -> None:
    """Defect: the reference keeps its diverged records if it connects after the quorum's write."""
    case = next(c for c in _cases(vectors) if c["case"] == DIVERGED_LATE)
    run = Run(case)
    for arrival in case["arrivals"]:
        run.arrive(arrival)
    late = case["arrivals"][-1]
    own, mark = late["lowWaterMark"], run.recovery.mark
    assert run.calls[late["replica"]] == [
        ["truncate", own, own],
        ["setLowWaterMark", mark],
        ["append", own + 1, mark],
    ]
    assert run.outcome(late["replica"]) == "recovered"


def _before(case: dict[str, Any]) -> list[tuple[str, int, Any]]:
    return [
        (r["replica"], r["sessionId"], r["closingHighWaterMark"])
        for r in case["replicaStatesBefore"]
    ]
