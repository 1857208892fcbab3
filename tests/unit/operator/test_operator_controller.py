"""The controller: an event that comes during a reconcile causes another one."""

from __future__ import annotations

import asyncio

from tests.support.eventually import eventually
from waltz_operator.shell.controller import Controller, ReconcileResult

NEVER_SECONDS = 100_000.0


class Reconciles:
    """Counts the reconciles; the first one lasts until it is released."""

    def __init__(self) -> None:
        self.count = 0
        self.released = asyncio.Event()

    async def reconcile(self, namespace: str, name: str) -> ReconcileResult:
        self.count += 1
        await self.released.wait()
        return ReconcileResult(NEVER_SECONDS, ready=True)


async def test_event_during_a_reconcile_causes_another_one() -> None:
    reconciles = Reconciles()
    controller = Controller(reconciles.reconcile)
    controller.enqueue("logs", "log")
    await eventually(lambda: reconciles.count == 1)
    controller.enqueue("logs", "log")
    controller.enqueue("logs", "log")
    reconciles.released.set()
    await eventually(lambda: reconciles.count == 2, seconds=2)
    for _ in range(20):
        await asyncio.sleep(0)
    assert reconciles.count == 2, "events of one reconcile are taken together"
    await controller.close()
