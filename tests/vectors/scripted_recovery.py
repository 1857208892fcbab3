"""Run one scripted recovery: replicas connect one by one and perform each step at once.

All steps that are possible are done before the next replica connects.
"""

from __future__ import annotations

from typing import Any

from waltz.metadata.core.formats import UNRESOLVED, PartitionMetadata, ReplicaState
from waltz_server.core.replication.recovery_steps import Copy, Mark, Measure, Step, Truncate
from waltz_server.core.replication.session_recovery import SessionRecovery


class Run:
    """A recovery over replicas that perform each step at once."""

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
        self.recovery = SessionRecovery(case["sessionId"], case["generation"], assigned, before, 20)
        self.quorum = case["quorum"]
        assert self.recovery.quorum == self.quorum
        self.last: dict[str, int] = {}
        self.calls: dict[str, list[list[Any]]] = {}

    def arrive(self, arrival: dict[str, Any]) -> None:
        """Connect a replica, and perform all steps that become possible."""
        name = arrival["replica"]
        self.last[name] = arrival["maxTransactionId"]
        self.calls[name] = []
        self.recovery.introduced(
            name,
            arrival["lastSessionId"],
            arrival["lowWaterMark"],
            arrival["localLowWaterMark"],
        )
        while steps := self.recovery.take_steps():
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
            case Copy(source, first, count):
                assert first == self.last[name] + 1
                assert first + count - 1 <= self.last[source]
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
        """Return the state of a replica as the vectors name it."""
        if name not in self.calls:
            return "not started"
        if name not in self.recovery.recovered():
            return "recovering"
        done = len(self.recovery.recovered()) >= self.quorum
        return "recovered" if done else "recovered, waiting for a quorum"

    def states(self) -> dict[str, list[Any]]:
        """Return session and closing mark of each replica in the metadata."""
        return {
            name: [s.session_id, "UNRESOLVED" if s.closing_mark == UNRESOLVED else s.closing_mark]
            for name, s in self.metadata.replicas.items()
        }


def _mark(value: int | str) -> int:
    return UNRESOLVED if value == "UNRESOLVED" else int(value)
