"""Inject the planned faults into a running cluster, and repair what they leave. Touches everything.

Each group of faults has a task of its own. `heal` ends all faults and waits until the cluster is
healthy again.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Awaitable, Callable
from pathlib import Path
from random import Random

from tests.chaos import damage
from tests.chaos.cluster import PARTITIONS, REPLICAS, ChaosCluster
from tests.chaos.history import Event, Fault, Note
from tests.chaos.plan import Group, Kind, Places, Planned, choose, pause_before
from tests.chaos.proxies import NO_FAULTS, LinkFaults, Passage, Proxy
from waltz.admin import Assignment, Move, OrderExecutor, Unassignment, carry_out
from waltz.local import ProcessFailed, ZooKeeperNotStarted
from waltz.local.core.plan import ZOOKEEPER
from waltz.metadata.store import StoreError

_ORDER_SECONDS = 45.0
_HEAL_SECONDS = 90.0
_POLL_SECONDS = 0.5
_ANSWER_SECONDS = 10.0
_NOTICED_SECONDS = 3.0
"""How long a damaged storage runs before its disk is emptied and rebuilt."""

_HELD, _SLOW = Passage.HELD, Passage.SLOW
_LINK_FAULTS = {
    Kind.CUT_STORAGE: LinkFaults(_HELD, _HELD),
    Kind.CUT_REQUESTS: LinkFaults(requests=_HELD),
    Kind.CUT_ANSWERS: LinkFaults(answers=_HELD),
    Kind.SLOW_STORAGE: LinkFaults(_SLOW, _SLOW),
    Kind.CUT_CLIENTS: LinkFaults(_HELD, _HELD),
    Kind.CUT_CLIENT_ANSWERS: LinkFaults(answers=_HELD),
    Kind.SLOW_CLIENTS: LinkFaults(_SLOW, _SLOW),
}

_VOLUMES: dict[Kind, Callable[[ChaosCluster, str], Path | None]] = {
    Kind.OLD_DATA: ChaosCluster.data,
    Kind.OLD_META: ChaosCluster.meta,
    Kind.OLD_WAL: ChaosCluster.wal,
    Kind.LOST_WAL: ChaosCluster.wal,
}
"""The volume that is copied while its storage runs, by the kind of fault."""


class Nemesis:
    """The faults of one run."""

    def __init__(
        self,
        cluster: ChaosCluster,
        random: Random,
        record: Callable[[Event], None],
        clock: Callable[[], float],
    ) -> None:
        self._cluster = cluster
        self._random = random
        self._record = record
        self._clock = clock
        names = cluster.plan.storage_names[:REPLICAS]
        mounted = tuple(name for name in cluster.mounts.names if name in names)
        logged = tuple(name for name in names if cluster.wal(name) is not None)
        self._places = Places(names, cluster.plan.server_names, mounted, logged)
        self._active: list[Planned] = []
        self._tasks: list[asyncio.Task[None]] = []
        self._stopping = asyncio.Event()
        self._at_home = dict.fromkeys(range(PARTITIONS), True)
        """Whether the third replica of each partition is on the third storage, not on the spare."""

    def start(self) -> None:
        self._tasks = [asyncio.create_task(self._run(group)) for group in Group]
        self._tasks.append(asyncio.create_task(self._restart_ended()))

    async def heal(self) -> None:
        """End all faults; raises TimeoutError if the cluster does not become healthy."""
        self._stopping.set()
        for result in await asyncio.gather(*self._tasks, return_exceptions=True):
            if isinstance(result, BaseException):
                raise result
        for name in self._cluster.all_names:
            self._cluster.resume(name)
            await self._start(name)
        for name in self._cluster.plan.storage_names:
            await self._try(self._cluster.sync(name))
        problem: str | None = "not checked yet"
        try:
            async with asyncio.timeout(_HEAL_SECONDS):
                while problem is not None:
                    problem = await self._problem()
                    await asyncio.sleep(_POLL_SECONDS)
        except TimeoutError:
            raise TimeoutError(
                f"not healthy {_HEAL_SECONDS:g} s after the faults: {problem}"
            ) from None

    async def _run(self, group: Group) -> None:
        """Inject one fault of a group after the other."""
        while not await self._stopped_within(pause_before(self._random, group)):
            fault = choose(self._random, group, self._active, self._places)
            if fault is None:
                continue
            self._active.append(fault)
            began = self._clock()
            try:
                more = await self._inject(fault)
            finally:
                self._active.remove(fault)
            ended = self._clock()
            self._record(Fault(group, str(fault.kind), fault.target, began, ended, more))

    async def _inject(self, fault: Planned) -> str:
        target = fault.target
        match fault.kind:
            case Kind.KILL_STORAGE | Kind.KILL_SERVER | Kind.KILL_ZOOKEEPER:
                self._cluster.kill(target)
                await self._stopped_within(fault.seconds)
                await self._start(target)
            case Kind.PAUSE_STORAGE | Kind.PAUSE_SERVER | Kind.PAUSE_ZOOKEEPER:
                self._cluster.pause(target)
                await self._stopped_within(fault.seconds)
                self._cluster.resume(target)
            case Kind.CUT_ZOOKEEPER:
                faults = LinkFaults(_HELD, _HELD)
                await self._change(self._cluster.zookeeper_links[target], faults, fault.seconds)
            case Kind.FULL_DISK:
                await self._fill(target, fault.seconds)
            case Kind.STALLED_DISK:
                await self._stall(target, fault.seconds)
            case Kind.MOVE_REPLICA:
                return await self._move()
            case Kind.ADD_REPLICA:
                return await self._add_and_remove()
            case kind if kind in _LINK_FAULTS:
                await self._change(self._cluster.links[target], _LINK_FAULTS[kind], fault.seconds)
            case _:
                return await self._damage(fault)
        return ""

    async def _change(self, link: Proxy, faults: LinkFaults, seconds: float) -> None:
        await link.set(faults)
        await self._stopped_within(seconds)
        await link.set(NO_FAULTS)

    async def _fill(self, target: str, seconds: float) -> None:
        await asyncio.to_thread(self._cluster.mounts.fill, target)
        await self._stopped_within(seconds)
        self._cluster.mounts.free(target)
        await self._start(target)

    async def _stall(self, target: str, seconds: float) -> None:
        await asyncio.to_thread(self._cluster.mounts.stall, target)
        await self._stopped_within(seconds)
        await asyncio.to_thread(self._cluster.mounts.resume, target)

    # ---- disks

    async def _damage(self, fault: Planned) -> str:
        """Damage the disk of a storage, run it like that, then empty and rebuild it."""
        name, cluster = fault.target, self._cluster
        copy = cluster.layout.directory / "copy"
        if fault.kind in _VOLUMES:
            await asyncio.to_thread(damage.copy_volume, self._volume(fault), copy)
            await self._stopped_within(fault.seconds)
        cluster.kill(name)
        more = await asyncio.to_thread(self._change_files, fault, copy)
        if fault.kind is not Kind.EMPTY_DISK:
            if not await self._start(name):
                more += " (the storage refused to start)"
            await self._stopped_within(_NOTICED_SECONDS)
            cluster.kill(name)
            self._empty(name)
        await self._rebuild(name, await self._sessions())
        return more

    def _change_files(self, fault: Planned, copy: Path) -> str:
        cluster, name = self._cluster, fault.target
        match fault.kind:
            case Kind.FLIP_BITS:
                return damage.flip_bits(cluster.volumes(name), self._random)
            case Kind.REMOVE_PARTITION:
                return damage.remove_partition(cluster.data(name), self._random)
            case Kind.OLD_DATA | Kind.OLD_META | Kind.OLD_WAL:
                damage.restore_volume(self._volume(fault), copy)
            case Kind.LOST_WAL:
                damage.empty(self._volume(fault))
            case _:
                self._empty(name)
        return ""

    def _volume(self, fault: Planned) -> Path:
        """Return the volume that a fault restores or empties."""
        volume = _VOLUMES[fault.kind](self._cluster, fault.target)
        assert volume is not None, "the fault is planned only for a storage with the volume"
        return volume

    def _empty(self, name: str) -> None:
        for volume in self._cluster.volumes(name):
            damage.empty(volume)

    async def _rebuild(self, name: str, before: dict[int, int]) -> None:
        """Assign the partitions to an emptied storage, and wait until its replicas take part.

        ``before`` are the store sessions at the time when it was emptied.
        """
        address = self._cluster.plan.storages[self._cluster.plan.storage_names.index(name)].address
        assigned = False
        while not await self._stopped_within(_POLL_SECONDS):
            await self._start(name)
            if not assigned:
                assigned = await self._try(self._cluster.sync(name))
            elif await self._takes_part(address, before):
                return

    async def _sessions(self) -> dict[int, int]:
        """Return the present store session of each partition, as soon as ZooKeeper answers."""
        while not await self._stopped_within(_POLL_SECONDS):
            with contextlib.suppress(StoreError, TimeoutError):
                async with asyncio.timeout(_ANSWER_SECONDS), self._cluster.metadata() as cluster:
                    found = [await cluster.partition_metadata(p) for p in range(PARTITIONS)]
                    return {p: metadata.value.session_id for p, metadata in enumerate(found)}
        return {}

    async def _takes_part(self, address: str, before: dict[int, int]) -> bool:
        """Return whether all replicas on a storage take part in sessions newer than ``before``."""
        with contextlib.suppress(StoreError, TimeoutError):
            async with asyncio.timeout(_ANSWER_SECONDS), self._cluster.metadata() as cluster:
                for partition, session in before.items():
                    value = (await cluster.partition_metadata(partition)).value
                    held = address in value.replicas  # the spare may have it instead
                    if held and not (value.session_id > session and value.takes_part(address)):
                        return False
                return True
        return False

    # ---- replicas

    async def _move(self) -> str:
        partition = self._random.randrange(PARTITIONS)
        third, spare = (s.address for s in self._cluster.plan.storages[REPLICAS - 1 :])
        home = self._at_home[partition]
        source, destination = (third, spare) if home else (spare, third)
        order = Move(partition, source, destination, delete_files=True)
        if await self._carry_out(order):
            self._at_home[partition] = not home
            return f"partition {partition} to {destination}"
        return f"partition {partition}: interrupted"

    async def _add_and_remove(self) -> str:
        partition = self._random.randrange(PARTITIONS)
        third, spare = (s.address for s in self._cluster.plan.storages[REPLICAS - 1 :])
        other = spare if self._at_home[partition] else third
        added = await self._carry_out(Assignment(other, (partition,)))
        removed = await self._carry_out(Unassignment(other, (partition,), delete_files=True))
        return f"partition {partition}: {'added' if added else 'not added'}, " + (
            "removed" if removed else "not removed"
        )

    async def _carry_out(self, order: Assignment | Unassignment | Move) -> bool:
        async def perform() -> None:
            async with asyncio.timeout(_ORDER_SECONDS), self._cluster.metadata() as cluster:
                await carry_out(order, OrderExecutor(cluster, self._cluster.tls))

        return await self._try(perform())

    # ---- help

    async def _restart_ended(self) -> None:
        """Start processes that have ended by themselves, as an operating system does."""
        while not await self._stopped_within(1.0):
            hit = {fault.target for fault in self._active}
            for name, pid in self._cluster.pids().items():
                if pid is None and name not in hit:
                    report = "" if name == ZOOKEEPER else self._cluster.exit_report(name)
                    self._note(f"{name} has ended by itself: {report}")
                    await self._start(name)

    async def _start(self, name: str) -> bool:
        try:
            await self._cluster.start_one(name)
        except (ProcessFailed, ZooKeeperNotStarted):
            return False
        return True

    async def _problem(self) -> str | None:
        try:
            return await self._cluster.first_problem()
        except Exception as error:  # whatever does not answer is a problem
            return f"{type(error).__name__}: {error}"

    async def _try(self, work: Awaitable[None]) -> bool:
        """Return whether ``work`` succeeds: it may fail while other faults last."""
        try:
            await work
        except Exception as error:
            self._note(f"an order failed: {type(error).__name__}: {error}"[:300])
            return False
        return True

    async def _stopped_within(self, seconds: float) -> bool:
        """Wait for ``seconds``, or until the faults are to end; return whether they are."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                await self._stopping.wait()
        return self._stopping.is_set()

    def _note(self, text: str) -> None:
        self._record(Note(self._clock(), text))
