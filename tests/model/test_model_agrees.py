"""Test that the model's rule and the server's code agree on every small input."""

from __future__ import annotations

from itertools import combinations_with_replacement, product

from tests.model import rule
from tests.model.values import NEVER, Do, Entry, Role
from waltz.metadata.core.formats import UNRESOLVED, ReplicaState
from waltz_server.core.replication.mark_vote import decided_position
from waltz_server.core.replication.replica_roles import VoteRole, classify

_ROLES = {
    VoteRole.VOTER: Role.VOTER,
    VoteRole.CLEAN: Role.CLEAN,
    VoteRole.UNKNOWN: Role.UNKNOWN,
    VoteRole.NEW: Role.NEW,
}
_ENTRIES: list[Entry | None] = [
    None,
    *(Entry(session, mark) for session in range(NEVER, 3) for mark in (None, -1, 0, 1)),
]


def test_vote_of_model_and_server_agree_on_every_small_vote() -> None:
    for counted, absent, quorum in product(range(6), range(6), range(1, 4)):
        for positions in combinations_with_replacement(range(3, -2, -1), counted):
            assert rule.decide(list(positions), absent, quorum) == decided_position(
                positions, absent, quorum
            )


def test_classification_of_model_and_server_agree_on_every_small_state() -> None:
    for own, other, session, mark in product(_ENTRIES, _ENTRIES, range(-1, 4), range(-1, 3)):
        begun = rule.begin(9, (own, other), (True, True))
        found = rule.introduced(begun, 0, (session, mark, -1)).views[0]
        states = {
            name: ReplicaState(
                entry.session, UNRESOLVED if entry.closing is None else entry.closing
            )
            for name, entry in (("a", own), ("b", other))
            if entry is not None
        }
        expected = classify("a", states, session, mark)
        assert found.step is not None
        cut_at = None if found.step.do is Do.MEASURE else found.step.at
        assert (found.role, cut_at, found.interim) == (
            _ROLES[expected.role],
            expected.cut_at,
            expected.interim_mark,
        )
        known = rule.introduced(begun, 0, (session, mark, -1)).known
        assert known == (mark if expected.mark_counts else -1)
