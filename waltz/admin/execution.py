"""Carries out plans: observes, performs the next step, observes again. ZooKeeper and the network.

Nothing is remembered from step to step, so whoever carries a plan out may be killed at any moment,
and another one may go on.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from waltz.admin.core.replicas import LAG_ALLOWED, Observed, Scope
from waltz.admin.core.steps import (
    Done,
    Drop,
    Fill,
    Hold,
    Order,
    Reassign,
    Refuse,
    Step,
    SwitchOff,
    SwitchOn,
    Wait,
)
from waltz.admin.observation import Observer
from waltz.admin.offline_copy import CopyFailed, Progress, copy_offline
from waltz.admin.storage_admin import StorageAdmin
from waltz.admin.storage_ports import storage_address
from waltz.metadata.cluster import Cluster
from waltz.metadata.core.storage_maps import ChangeRefused
from waltz.metadata.store import StoreError
from waltz.net import ConnectionLost, DialFailed, RemoteFailure, RpcConnection, TlsConfig

_POLL_SECONDS = 0.2
_COPIED_AT_ONCE = 1000

_TRANSIENT = (
    ConnectionLost,
    CopyFailed,
    DialFailed,
    ChangeRefused,
    RemoteFailure,
    StoreError,
    TimeoutError,
)
"""What may be otherwise when one looks again."""

OnStep = Callable[[Step | Wait], None]


class NotPossible(Exception):
    """The goal cannot be reached; the text says why. What has been done by then is harmless."""


class Stalled(Exception):
    """Nothing went on for too long; the text says what was waited for. Calling again goes on."""


class ReplicaOperator:
    """Sees and does to a cluster what plans need.

    ``answer_seconds`` is how long a storage or a server may be silent, or away, before it counts as
    failed; ``lag_allowed`` is for `Observed`. ``on_copied`` is told how far a copy is.
    """

    def __init__(
        self,
        cluster: Cluster,
        tls: TlsConfig,
        *,
        answer_seconds: float = 10.0,
        lag_allowed: int = LAG_ALLOWED,
        on_copied: Progress = lambda _at, _last: None,
    ) -> None:
        self._cluster = cluster
        self._tls = tls
        self._answer_seconds = answer_seconds
        self._on_copied = on_copied
        self._observer = Observer(
            cluster, tls, answer_seconds=answer_seconds, lag_allowed=lag_allowed
        )

    async def observe(self, scope: Scope) -> Observed:
        """Return what is. Raises NoCluster, MalformedMetadata."""
        return await self._observer.observe(scope)

    async def perform(self, step: Step) -> None:
        """Do one step. Raises what the ports and the metadata do, and TimeoutError."""
        match step:
            case Fill():
                await self._fill(step)
            case Reassign(changes):
                async with asyncio.timeout(self._answer_seconds):
                    await self._cluster.change_replicas(changes)
            case Hold() | SwitchOff() | SwitchOn() | Drop():
                async with asyncio.timeout(self._answer_seconds):
                    async with await self._admin(step.storage) as admin:
                        await tell_storage(admin, step)

    async def _fill(self, step: Fill) -> None:
        """Copy for as long as it goes on, however long that is."""
        params = await self._cluster.store_params()
        clock = asyncio.get_running_loop().time
        async with asyncio.timeout(self._answer_seconds) as silence:

            def progress(at: int, last: int) -> None:
                silence.reschedule(clock() + self._answer_seconds)
                self._on_copied(at, last)

            async with (
                await self._admin(step.source) as giver,
                await self._admin(step.destination) as taker,
            ):
                address = storage_address(step.destination)
                cluster = params.key, params.num_partitions
                port = await RpcConnection.open_storage(address, self._tls, cluster)
                try:
                    await copy_offline(
                        giver,
                        taker,
                        port,
                        step.partition,
                        batch_size=_COPIED_AT_ONCE,
                        progress=progress,
                        overwrite=True,
                    )
                finally:
                    port.close()

    async def _admin(self, storage: str) -> StorageAdmin:
        maps, params = await self._cluster.storage_maps(), await self._cluster.store_params()
        port = maps.connections.admin_ports.get(storage)
        if port is None:
            raise ChangeRefused(f"Storage {storage} is not in the cluster.")
        return await StorageAdmin.open(storage, port, self._tls, params)


async def carry_out(
    order: Order,
    operator: ReplicaOperator,
    *,
    patience_seconds: float = 60.0,
    on_step: OnStep = lambda _: None,
) -> int:
    """Do what ``order`` says until it is done; return the number of steps that were taken.

    ``on_step`` is told every step before it is tried, and every wait when its reason changes: so is
    a step that failed, or that was done without effect.
    Raises NotPossible, and Stalled if no step could be taken for ``patience_seconds``; also what
    `ReplicaOperator.observe` does.
    """
    clock = asyncio.get_running_loop().time
    last_success, taken, told = clock(), 0, ""
    done: Step | None = None
    while True:
        match order.next_step(await operator.observe(order.scope)):
            case Done():
                return taken
            case Refuse(reason):
                raise NotPossible(reason)
            case Wait(reason):
                pass
            case step if step == done:
                # Done again, as it may help yet, but nothing goes on by that.
                reason = await _try(step, operator) or _without_effect(step)
            case step:
                on_step(step)
                if (problem := await _try(step, operator)) is None:
                    last_success, told, taken, done = clock(), "", taken + 1, step
                    continue
                reason = problem
        if reason != told:
            on_step(Wait(reason))
        told = reason
        if clock() - last_success > patience_seconds:
            raise Stalled(f"nothing went on for {patience_seconds:g} s: {reason}")
        await asyncio.sleep(_POLL_SECONDS)


async def _try(step: Step, operator: ReplicaOperator) -> str | None:
    """Return why a step could not be done, None if it was."""
    try:
        await operator.perform(step)
    except _TRANSIENT as problem:
        return f"{step}: {str(problem) or 'no answer in time'}"
    return None


def _without_effect(step: Step) -> str:
    text = f"{step}: that was done, and nothing has changed by it"
    match step:
        case Hold(storage) | SwitchOn(storage) | SwitchOff(storage) | Drop(storage):
            return f"{text}: if files are damaged, /health of storage {storage} says which"
        case _:
            return text


async def tell_storage(admin: StorageAdmin, step: Hold | SwitchOff | SwitchOn | Drop) -> None:
    """Have a storage do one step of its own, by its admin port."""
    match step:
        case Hold(_, partition):
            await admin.assign((partition,))
        case SwitchOn(_, partition):
            await admin.set_available((partition,), available=True)
        case SwitchOff(_, partition):
            await admin.set_available((partition,), available=False)
        case Drop(_, partitions, delete_files):
            await admin.unassign(partitions, delete_files=delete_files)
