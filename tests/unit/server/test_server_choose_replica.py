"""Which replica a server reads from: the least loaded, whatever it missed while it was away."""

from __future__ import annotations

from collections import Counter

from waltz_server.core.replication.session_state import (
    ReplicaSession,
    ReplicaStage,
    choose_replica,
    readable_replicas,
)


def _replica(storage: str, stage: ReplicaStage = ReplicaStage.ACTIVE) -> ReplicaSession:
    return ReplicaSession(storage, stage, acknowledged=100)


def _choose(replicas: list[ReplicaSession], busy: str = "") -> str | None:
    """Choose a replica, but not ``busy``, for a read of record 100."""
    return choose_replica(replicas, readable_replicas(replicas, 100, (busy,)))


def _reads(replicas: list[ReplicaSession], count: int) -> Counter[str | None]:
    """Choose a replica for each of ``count`` reads; return how many reads each gets."""
    return Counter(_choose(replicas) for _ in range(count))


def test_choose_replica_faster_replica_gets_more_reads() -> None:
    fast, slow = _replica("fast"), _replica("slow")
    fast.expected_read_ms, slow.expected_read_ms = 1.0, 2.0
    assert _reads([fast, slow], 30) == {"fast": 20, "slow": 10}


def test_choose_replica_returned_replica_gets_only_its_share() -> None:
    replicas = [_replica("a"), _replica("b"), _replica("late", ReplicaStage.RECOVERING)]
    assert _reads(replicas, 600) == {"a": 300, "b": 300}
    replicas[2].stage = ReplicaStage.ACTIVE
    shares = _reads(replicas, 30)
    assert all(9 <= shares[name] <= 11 for name in ("a", "b", "late")), shares


def test_choose_replica_excluded_replica_gets_only_its_share_afterwards() -> None:
    replicas = [_replica("a"), _replica("b"), _replica("busy")]
    for _ in range(600):
        _choose(replicas, "busy")
    shares = _reads(replicas, 30)
    assert all(9 <= shares[name] <= 11 for name in ("a", "b", "busy")), shares


def test_choose_replica_without_a_replica_that_has_the_record_chooses_none() -> None:
    replicas = [_replica("a")]
    assert choose_replica(replicas, readable_replicas(replicas, 101, ())) is None
