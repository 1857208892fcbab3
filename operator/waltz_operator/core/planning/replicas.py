"""Which storage holds which partitions, and whether they are switched on. Pure.

A partition in which nothing was ever committed may get replicas freely. Any other gets at most one
more at a time, by the library's rule for changes of replicas (`waltz.admin.core.replicas`). A
replica that took part and is lost is not made anew here: an empty one in its place would be cut
from what it may have acknowledged.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

from waltz.admin.core.replica_recovery import counts_in_vote
from waltz.admin.core.replicas import PartitionView, change_obstacle, first_unhealthy_reason
from waltz.admin.core.steps import ChangeAssignment, CreateReplicas, SwitchOn
from waltz.metadata.core.formats import NO_SESSION
from waltz.metadata.core.storage_maps import ReplicaChange
from waltz_operator.core.desired import Desired, addresses_of
from waltz_operator.core.observed import Present
from waltz_operator.core.planning.znodes import groups_of, is_registered
from waltz_operator.core.steps import NOTHING, Plan, problem, wait


def plan_replicas(desired: Desired, present: Present) -> tuple[Plan, bool]:
    """Return what is to be done about partitions, and whether servers may start.

    A partition is first opened with a replica in every pool. One that was opened before needs its
    servers even if it lacks one: without them it gets no other.
    """
    wanted = _Wanting(desired, present)
    missing = [(view, new) for view in _views(present) if (new := wanted.replicas_for(view))]
    complete = len(desired.own_pools) == len(desired.cluster.spec.pools) and not wanted.homeless
    plan = _plan_switches(present) + _plan_missing(present, missing)
    if plan.done and complete:
        plan += _await_health(present)
    lacking = {view.partition for view, _ in missing}
    unused = [view.partition for view in _views(present) if is_unused(view)]
    return plan, not unused or (complete and lacking.isdisjoint(unused))


def is_unused(view: PartitionView) -> bool:
    """Whether nothing was ever committed: no replica has taken part in a session yet."""
    return not view.metadata.replicas


class _Wanting:
    """Deals partitions to storages: each to the one of its group that has fewest.

    One that had the partition in its last session gets it back: it has what was committed.
    """

    def __init__(self, desired: Desired, present: Present) -> None:
        self._maps = maps = present.maps
        groups = groups_of(desired, maps)
        self._load = Counter({s: len(held) for s, held in maps.assignments.partitions.items()})
        self._members = {
            group: [
                storage
                for storage in addresses_of(pool)
                if is_registered(maps, storage, group, pool.spec.admin_port)
            ]
            for pool in desired.own_pools
            if (group := groups.get(pool.metadata.name)) is not None
        }
        self.homeless = len(self._members) < len(desired.own_pools)

    def replicas_for(self, view: PartitionView) -> frozenset[str]:
        """Return the storages that are to get a replica, so that each pool has one."""
        groups = self._maps.groups.groups
        have = {groups[storage] for storage in view.replicas if storage in groups}
        chosen = []
        for group, members in self._members.items():
            if group in have:
                continue
            if not members:
                self.homeless = True
                continue
            storage = min(
                members,
                key=lambda each: (
                    each not in view.session_replicas,
                    self._load[each],
                    members.index(each),
                ),
            )
            self._load[storage] += 1
            chosen.append(storage)
        return frozenset(chosen)


def _views(present: Present) -> Iterator[PartitionView]:
    views = present.replicas.partitions
    return (views[partition] for partition in sorted(views))


def _plan_switches(present: Present) -> Plan:
    """Return what brings assigned replicas into the state in which servers may use them."""
    result = NOTHING
    silent = set()
    for view in _views(present):
        for storage in sorted(view.replicas):
            if reason := present.replicas.storage_problem(storage):
                silent.add(f"storage {storage} does not answer: {reason}")
            else:
                result += _plan_switch(present, view, storage)
    return result + wait(*sorted(silent))


def _plan_switch(present: Present, view: PartitionView, storage: str) -> Plan:
    partition, held = view.partition, present.replicas.held(storage, view.partition)
    state = view.metadata.replicas.get(storage)
    took_part = state is not None and state.session_id != NO_SESSION
    if held is None and took_part:
        return problem(
            f"storage {storage} has lost its replica of partition {partition}: bring it back by "
            f"waltz storage recover {storage} {partition}"
        )
    if held is None:
        return Plan((CreateReplicas(storage, (partition,)),))
    if held.available:
        return NOTHING
    if took_part and not counts_in_vote(view, storage, held):
        return problem(
            f"the replica of partition {partition} on storage {storage} is switched off and "
            "incomplete: somebody may be copying it; if not, bring it back by "
            f"waltz storage recover {storage} {partition}"
        )
    return Plan((SwitchOn(storage, (partition,)),))


def _plan_missing(present: Present, missing: list[tuple[PartitionView, frozenset[str]]]) -> Plan:
    """Return how partitions come to the replicas that they lack.

    Those that nothing was written to get theirs at once, and together. Of the others one gets one.
    A replica that the last session had may come back whatever the others are like: a new session
    needs a quorum of those.
    """
    unused = [(view, new) for view, new in missing if is_unused(view)]
    if unused:
        return _plan_all(present, unused)
    blocked = NOTHING
    for view, new in missing:
        first = min(new, key=lambda each: (each not in view.session_replicas, each))
        wanted = view.replicas | {first}
        reason = change_obstacle(present.replicas, view, wanted)
        if reason and first not in view.session_replicas:
            blocked += wait(f"partition {view.partition} lacks a replica: {reason}")
            continue
        return _plan_all(present, [(view, frozenset({first}))])
    return blocked


def _plan_all(present: Present, missing: list[tuple[PartitionView, frozenset[str]]]) -> Plan:
    """Return a plan to have the storages make the replicas, then to tell servers of them."""
    observed, result, changes = present.replicas, NOTHING, []
    silent: dict[str, str] = {}
    for view, new in missing:
        for storage in sorted(new):
            if reason := observed.storage_problem(storage):
                silent[storage] = f"storage {storage} does not answer: {reason}"
                continue
            held = observed.held(storage, view.partition)
            if held is None:
                result += Plan((CreateReplicas(storage, (view.partition,)),))
            elif not held.available:
                result += Plan((SwitchOn(storage, (view.partition,)),))
        changes.append(ReplicaChange(view.partition, view.replicas, view.replicas | new))
    if result == NOTHING and not silent:
        return Plan((ChangeAssignment(tuple(changes)),))
    return result + wait(*silent.values())


def _await_health(present: Present) -> Plan:
    """Return what is not well with replicas that are where they shall be."""
    if not present.servers:
        return NOTHING
    ailments = (
        first_unhealthy_reason(present.replicas, view, view.replicas) for view in _views(present)
    )
    found = [unhealthy_reason for unhealthy_reason in ailments if unhealthy_reason is not None]
    return wait(*found[:_MOST_TOLD])


_MOST_TOLD = 5
"""How many ailments are told at most: a status has to be read."""
