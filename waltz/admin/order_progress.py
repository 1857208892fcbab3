"""Carry out orders: observe, perform the next step, observe again. Touches the event loop.

A process that carries out an order may be killed at any moment. Then carry out the same order
again: no state is stored between steps, and the first observation shows which steps are left.

A `GroupAssignment` (`core.assignment`) is the one order that cannot always be repeated. It may only
begin if no storage of the group has partitions (`refusal`), and its first step assigns partitions
to them in ZooKeeper. If it is interrupted after this step, carry out a `Synchronization`
(`core.synchronization`) of each storage of the group, which creates the assigned replicas.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Protocol

from waltz.admin.core.replicas import ObservationScope, ReplicaObservation
from waltz.admin.core.steps import (
    CreateReplicas,
    Done,
    DropReplicas,
    Order,
    Refuse,
    SetSwitch,
    Step,
    SwitchOff,
    SwitchOn,
    Wait,
)
from waltz.admin.offline_copy import CopyFailed
from waltz.admin.replica_comparison import NotEqual
from waltz.metadata.core.storage_maps import ChangeRefused
from waltz.metadata.store import StoreError, StoreUnavailable
from waltz.net import ConnectionLost, DialFailed, RemoteFailure

_POLL_SECONDS = 0.2
"""The time between two observations while there is no progress."""

_TRANSIENT = (
    ConnectionLost,
    CopyFailed,
    DialFailed,
    ChangeRefused,
    NotEqual,
    RemoteFailure,
    StoreError,
    TimeoutError,
)
"""Errors of a step after which the order continues: the next observation decides how.

If such errors do not end, the order ends with `Stalled`."""

OnStep = Callable[[Step | Wait], None]
"""Called with a step before it is tried, and with a `Wait` when its reason changes."""


class NotPossible(Exception):
    """The goal cannot be reached; the text says why. The steps taken so far are harmless."""


class OrderRefused(NotPossible):
    """The order must not begin: it would break a rule of the storage maps."""


class ReplicaRefused(NotPossible):
    """A storage refuses a replica that a step needs; the text has its reason and its advice."""


class Stalled(Exception):
    """No step succeeded for too long; the text says why. Performing the order again continues."""


class StepPerformer(Protocol):
    """Observes and changes the replicas of one cluster: what `carry_out` needs."""

    async def observe(self, scope: ObservationScope) -> ReplicaObservation:
        """Return the present state. Raises StoreUnavailable if ZooKeeper does not answer."""

    async def perform(self, step: Step) -> None:
        """Perform one step.

        Raises errors of connections, storages and metadata, TimeoutError, UnsupportedByPeer if a
        storage is too old for the step, and ReplicaRefused.
        """


async def carry_out(
    order: Order,
    executor: StepPerformer,
    *,
    max_stall_seconds: float = 60.0,
    on_step: OnStep = lambda _: None,
) -> int:
    """Perform the steps of ``order`` until it is complete; return how many steps succeeded.

    ``on_step`` is called with every step before it is tried, and with a `Wait` when its reason
    changes. Each of the following is reported as a `Wait`, too:

    * a step that failed; it is tried again without another call of ``on_step`` for the step,
    * an observation that failed because ZooKeeper did not answer,
    * a step that succeeded without an effect: the next observation requires the same step again.

    Raises OrderRefused, NotPossible, UnsupportedByPeer, the other errors of
    `StepPerformer.observe`, and Stalled if there was no progress for ``max_stall_seconds``. An
    observation or a step that has begun is not ended early.
    """
    clock = asyncio.get_running_loop().time
    steps = _StepsTaken(executor, on_step)
    last_success, may_begin = clock(), False
    while True:
        obstacle: str | None  # Why there is no progress in this round.
        try:
            observation = await executor.observe(order.scope)
        except StoreUnavailable as problem:
            obstacle = f"{problem}; find the cause with: waltz doctor"
        else:
            if not may_begin:
                # Check this only once: later, the order's own changes could lead to a refusal.
                if (refusal := order.refusal(observation)) is not None:
                    raise OrderRefused(refusal)
                may_begin = True
            match order.next_step(observation):
                case Done():
                    return steps.num_succeeded
                case Refuse(reason):
                    raise NotPossible(reason)
                case Wait(reason):
                    obstacle = reason
                case step:
                    obstacle = await steps.take(step)
                    if obstacle is None and isinstance(step, DropReplicas) and step.final:
                        # Stop here: no observation would show the effect (see `DropReplicas`), so
                        # the order would require the same step again.
                        return steps.num_succeeded
        if obstacle is None:
            last_success = clock()
            continue
        steps.report_wait(obstacle)
        if clock() - last_success >= max_stall_seconds:
            # With 0 the first obstacle ends the order: there is no duration to report.
            duration = f"no progress for {max_stall_seconds:g} s: " if max_stall_seconds else ""
            raise Stalled(duration + obstacle + steps.summary())
        await asyncio.sleep(_POLL_SECONDS)


class _StepsTaken:
    """The steps of an order so far, and what was reported about them to ``on_step``."""

    def __init__(self, executor: StepPerformer, on_step: OnStep) -> None:
        self.num_succeeded = 0
        self._executor = executor
        self._on_step = on_step
        self._last_succeeded: Step | None = None
        self._last_failed: Step | None = None
        """The last step that failed, None after a success."""
        self._reported_reason = ""
        """The reason of the last Wait that was reported, empty after a success."""

    async def take(self, step: Step) -> str | None:
        """Perform ``step``; return why there was no progress, None if there was."""
        if step == self._last_succeeded:
            # The step had no effect. Repeat it: if it has an effect now, the next step is another
            # one, and that counts as progress.
            return await _try(step, self._executor) or _no_effect_reason(step)
        if step != self._last_failed:
            self._on_step(step)
        problem = await _try(step, self._executor)
        if problem is not None:
            self._last_failed = step
            return problem
        self.num_succeeded += 1
        self._last_succeeded, self._last_failed = step, None
        self._reported_reason = ""
        return None

    def summary(self) -> str:
        """Return the end of the text of an error: the steps that have succeeded, if any."""
        if self._last_succeeded is None:
            return ""
        return f"; steps completed before: {self.num_succeeded}, the last: {self._last_succeeded}"

    def report_wait(self, reason: str) -> None:
        """Report why there is no progress, unless the same reason was reported last."""
        if reason != self._reported_reason:
            self._on_step(Wait(reason))
        self._reported_reason = reason


async def _try(step: Step, executor: StepPerformer) -> str | None:
    """Return why a step failed, None if it succeeded."""
    try:
        await executor.perform(step)
    except _TRANSIENT as problem:
        return f"{step}: {str(problem) or 'no answer in time'}"
    return None


def _no_effect_reason(step: Step) -> str:
    """Return that a step had no effect, and where to look for the cause."""
    text = f"{step}: the step succeeded and had no effect"
    match step:
        case CreateReplicas() | SwitchOn() | SwitchOff() | SetSwitch() | DropReplicas():
            return f"{text}: if files are damaged, /health of storage {step.storage} names them"
        case _:
            return text
