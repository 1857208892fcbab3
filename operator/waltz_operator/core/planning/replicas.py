"""Plan which storage holds which partitions, and switch assigned replicas on. Pure.

A partition is *unused* if nothing was ever committed in it. It may get any number of replicas at
once, which this module plans. The replicas of any other partition change only by the rule of
`waltz.admin.core.replicas`: the replicas that stay must be healthy, and a quorum both of the old
and of the new set. `planning.shape` plans these changes. There is one exception, which this module
plans: a storage that took part in the partition's last store session is assigned to it again.

This module never creates a replica again that was in a store session and is lost
(test_lost_replica_is_a_problem_for_a_person). An empty replica in its place would count in a vote,
and a transaction that the lost replica acknowledged could lose its quorum. `planning.healing`
replaces a whole volume. Random scenarios are in tests/unit/operator/test_operator_plan_quorum.py.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Set
from dataclasses import replace

from waltz.admin.core.replica_recovery import counts_in_vote
from waltz.admin.core.replicas import PartitionView, first_unhealthy_reason
from waltz.admin.core.steps import ChangeAssignment, CreateReplicas, SwitchOn
from waltz.metadata.core.formats import NO_SESSION
from waltz.metadata.core.storage_maps import ReplicaChange
from waltz_operator.core.adoption import NO_FOREIGN_PARTS, ForeignParts
from waltz_operator.core.desired import DesiredCluster, addresses_of
from waltz_operator.core.observed import ClusterPresent
from waltz_operator.core.planning.shape import plan_shape
from waltz_operator.core.planning.shape_rebalance import Capacities
from waltz_operator.core.planning.shape_removal import plan_reassignment
from waltz_operator.core.planning.znodes import groups_of, is_registered
from waltz_operator.core.steps import EMPTY_PLAN, ClusterPlan, problem, wait

_MAX_UNHEALTHY_REASONS = 5
"""The largest number of unhealthy reasons in a plan."""


def plan_replicas(
    desired: DesiredCluster,
    present: ClusterPresent,
    to_heal: Set[str],
    capacities: Capacities,
    foreign: ForeignParts = NO_FOREIGN_PARTS,
) -> tuple[ClusterPlan, bool]:
    """Return the plan for all partitions, and whether servers may start.

    ``to_heal`` are the storages of `planning.healing.storages_to_heal`: their replicas are left to
    that module. ``capacities`` are the sizes of the data volumes in bytes, by storage. ``foreign``
    are the storages and servers that the operator does not run.

    These rules say whether servers may start:

    * A partition is opened for the first time only with a replica in every pool.
    * For a partition that was open before, servers may start even if it lacks a replica: a new
      replica catches up only while the partition is open.
    * A partition with a replica on a foreign storage counts as open before, even if its metadata
      says that it was never open: the metadata may be lost while the foreign storages have the log.
      So no empty replica is assigned beside that log, and servers may start. They keep a partition
      with lost metadata closed (`waltz_server.core.replication.lost_metadata`).
    * No server starts while a foreign storage with partitions does not answer the operator. Servers
      may not reach this storage either. Then they could not open the partitions that they take over
      from foreign servers.
    """
    placement = _Placement(desired, present)
    # The partitions that lack replicas, each with the storages that must get one.
    missing = []
    for view in _views(present):
        if new := placement.choose_storages(view):
            missing.append((view, new))
    all_pools_are_claimed = len(desired.wanted_pools) == len(desired.cluster.spec.pools)
    # Read after `choose_storages`, which may find a pool without a registered storage.
    pools_are_usable = all_pools_are_claimed and not placement.lacks_storages
    plan = _plan_switches(present, to_heal, foreign.storages)
    # The unused partitions, without those that count as open before by the third rule above.
    unused = {
        view.partition
        for view in _views(present)
        if is_unused(view) and not view.replicas & foreign.storages
    }
    # Assigns removed replicas again, where a partition opens only with them.
    reassignment = plan_reassignment(present)
    without_copy = _plan_without_copy(present, missing, unused)
    # Only one of three plans is followed now, because each of them changes assignments. The
    # reassignment comes first: the other plans may wait for a partition that needs it.
    if not reassignment.done:
        plan += reassignment
    elif without_copy is not None:
        plan += without_copy
    else:
        shape = plan_shape(desired, present, missing, capacities, foreign)
        plan += _delayed_shape(shape, to_heal) if to_heal else shape
    if plan.done and pools_are_usable:
        # Every partition has its replicas. They become healthy without a step of the operator.
        plan += _await_health(present)
    # Foreign servers are an obstacle to copies on the pools. The waits of a change name it already,
    # unless `_delayed_shape` has replaced these waits.
    obstacle = foreign.obstacle_to_copies_on_pools()
    if (plan.change is None or to_heal) and desired.cluster.spec.pools and obstacle is not None:
        plan += wait(obstacle)
    without_replica = {view.partition for view, _ in missing}
    # Whether every unused partition has a replica in every pool.
    servers_may_start = not unused or (pools_are_usable and without_replica.isdisjoint(unused))
    if foreign.unreached_storage(present.replicas) is not None:
        servers_may_start = False
    return plan, servers_may_start


def is_unused(view: PartitionView) -> bool:
    """Whether nothing was ever committed in a partition: no replica was ever in a store session."""
    return not view.metadata.replicas


class _Placement:
    """Chooses storages for partitions: in each group the storage with the fewest partitions.

    Two kinds of storages are preferred. The first is a storage that had a replica in the
    partition's last store session, because this replica has the committed transactions. The second
    is a storage that holds a replica already, which an interrupted addition has created.

    ``lacks_storages`` is true if a pool has no group of its own, or if `choose_storages` has found
    a pool that has no registered storage for a replica.
    """

    def __init__(self, desired: DesiredCluster, present: ClusterPresent) -> None:
        self._maps = maps = present.maps
        self._replicas = present.replicas
        groups = groups_of(desired, maps)
        self._load = Counter({s: len(held) for s, held in maps.assignments.partitions.items()})
        """The number of partitions of each storage."""
        self._members = {
            group: [
                storage
                for storage in addresses_of(pool)
                if is_registered(maps, storage, group, pool.spec.admin_port)
            ]
            for pool in desired.wanted_pools
            if (group := groups.get(pool.metadata.name)) is not None
        }
        """The registered storages of each pool, by the id of the pool's group."""
        self.lacks_storages = len(self._members) < len(desired.wanted_pools)

    def choose_storages(self, view: PartitionView) -> frozenset[str]:
        """Choose the storages that must get a replica, so that every pool has a replica.

        The next choice counts these replicas as partitions of the chosen storages. So this method
        is called once for each partition, in ascending order.
        """
        groups = self._maps.groups.groups
        groups_with_replica = {groups[storage] for storage in view.replicas if storage in groups}
        chosen = []
        for group, members in self._members.items():
            if group in groups_with_replica:
                continue
            if not members:
                self.lacks_storages = True
                continue
            storage = min(
                members,
                # False sorts before True.
                key=lambda member: (
                    member not in view.session_replicas,
                    self._replicas.held(member, view.partition) is None,
                    self._load[member],
                    members.index(member),
                ),
            )
            self._load[storage] += 1
            chosen.append(storage)
        assert len({groups[storage] for storage in chosen}) == len(chosen), "two in one group"
        return frozenset(chosen)


def _views(present: ClusterPresent) -> Iterator[PartitionView]:
    views = present.replicas.partitions
    return (views[partition] for partition in sorted(views))


def _delayed_shape(shape: ClusterPlan, to_heal: Set[str]) -> ClusterPlan:
    """Return the plan for the shape without its steps, while volumes of ``to_heal`` are replaced.

    With its steps, more than one storage could be away at a time. The plan still has the change:
    without steps and without a change, the spec would count as reconciled (`core.status`).
    """
    change = shape.change
    if change is None:
        # The plan reports a problem, or unregisters storages that have no group and no partitions.
        return shape
    storages = ", ".join(sorted(to_heal))
    why = f"{change.progress} waits: the volume of storage {storages} is replaced first"
    return replace(shape, steps=(), waits=(why,))


def _plan_switches(present: ClusterPresent, to_heal: Set[str], foreign: Set[str]) -> ClusterPlan:
    """Return the steps that create or switch on assigned replicas, so that servers can use them.

    The plan also waits for each storage with such replicas that does not answer. Replicas on
    ``foreign`` storages, and on those in ``to_heal``, are left as they are.
    """
    result = EMPTY_PLAN
    unreachable = set()
    for view in _views(present):
        for storage in sorted(view.replicas - to_heal):
            if reason := present.replicas.storage_problem(storage):
                unreachable.add(f"storage {storage} does not answer: {reason}")
            elif storage not in foreign:
                result += _plan_switch(present, view, storage)
    return result + wait(*sorted(unreachable))


def _plan_switch(present: ClusterPresent, view: PartitionView, storage: str) -> ClusterPlan:
    """Return the plan for an assigned replica, empty if the replica is switched on."""
    partition, held = view.partition, present.replicas.held(storage, view.partition)
    state = view.metadata.replicas.get(storage)
    was_in_session = state is not None and state.session_id != NO_SESSION
    if held is None and was_in_session:
        return problem(
            f"storage {storage} has lost its replica of partition {partition}: recover it by "
            f"waltz storage recover {storage} {partition}"
        )
    if held is None:
        return ClusterPlan((CreateReplicas(storage, (partition,)),))
    if held.available:
        return EMPTY_PLAN
    # `counts_in_vote` says whether a vote *may* count the replica. A vote must not count one that
    # is incomplete, because it lacks transactions. So an incomplete replica is not switched on.
    if was_in_session and not counts_in_vote(view, storage, held):
        return problem(
            f"the replica of partition {partition} on storage {storage} is switched off and "
            "incomplete: wait if a copy is running, otherwise recover the replica by "
            f"waltz storage recover {storage} {partition}"
        )
    return ClusterPlan((SwitchOn(storage, (partition,)),))


def _plan_without_copy(
    present: ClusterPresent,
    missing: list[tuple[PartitionView, frozenset[str]]],
    unused: Set[int],
) -> ClusterPlan | None:
    """Return the plan for replicas that need no copy, None if every missing replica needs one.

    A *copy* is the transfer of transactions from another replica. ``missing`` has the partitions
    that lack replicas, each with the storages that must get a replica. ``unused`` are the unused
    partitions. Two kinds of replicas need no copy:

    * The replicas of unused partitions, which are empty. All of them are planned together, and
      before those of the other kind.
    * A replica on a storage that took part in the partition's last store session, because it has
      the transactions. One such storage is assigned to its partition again. Replicas that need a
      copy wait until all others are healthy, because they raise the quorum. This one does not wait:
      a new session needs a quorum of the last session's replicas in any case, and this storage can
      help to form it only while it is assigned (`waltz.admin.core.replicas.session_opens`).
    """
    empty = [(view, new) for view, new in missing if view.partition in unused]
    if empty:
        return _plan_additions(present, empty)
    for view, new in missing:
        if returning := sorted(new & view.session_replicas):
            return _plan_additions(present, [(view, frozenset(returning[:1]))])
    return None


def _plan_additions(
    present: ClusterPresent, additions: list[tuple[PartitionView, frozenset[str]]]
) -> ClusterPlan:
    """Return a plan that creates replicas, or assigns them in ZooKeeper if all of them exist.

    ``additions`` are partitions, each with the storages that get a replica of it. The assignment is
    written only after the replicas exist: otherwise a server could open a session with replicas
    that do not exist yet.
    """
    replicas, result, changes = present.replicas, EMPTY_PLAN, []
    unreachable: dict[str, str] = {}
    for view, new in additions:
        for storage in sorted(new):
            if reason := replicas.storage_problem(storage):
                unreachable[storage] = f"storage {storage} does not answer: {reason}"
                continue
            held = replicas.held(storage, view.partition)
            if held is None:
                result += ClusterPlan((CreateReplicas(storage, (view.partition,)),))
            elif not held.available:
                result += ClusterPlan((SwitchOn(storage, (view.partition,)),))
        assert not new & view.replicas, f"partition {view.partition} has these replicas already"
        changes.append(ReplicaChange(view.partition, view.replicas, view.replicas | new))
    if result == EMPTY_PLAN and not unreachable:
        return ClusterPlan((ChangeAssignment(tuple(changes)),))
    return result + wait(*unreachable.values())


def _await_health(present: ClusterPresent) -> ClusterPlan:
    """Return a wait for assigned replicas that are unhealthy; empty before a server has joined."""
    if not present.servers:
        return EMPTY_PLAN
    reasons = (
        first_unhealthy_reason(present.replicas, view, view.replicas) for view in _views(present)
    )
    known = [reason for reason in reasons if reason is not None]
    return wait(*known[:_MAX_UNHEALTHY_REASONS])
