"""``/healthz`` of the operator fails while a watch or a reconcile is stuck."""

from __future__ import annotations

import asyncio
from typing import Any

import kopf
from aiohttp import ClientSession
from prometheus_client.registry import CollectorRegistry

from waltz.testing import run
from waltz_operator.shell.controller import Controller, ReconcileResult
from waltz_operator.shell.handlers import make_registry
from waltz_operator.shell.http import serve_http
from waltz_operator.shell.liveness import Liveness


async def reconcile_at_once(_namespace: str, _name: str) -> ReconcileResult:
    return ReconcileResult(15.0, ready=True)


def test_watch_without_progress_for_ten_minutes_is_a_problem_until_it_begins_again() -> None:
    run(watch_for_ten_minutes())


async def watch_for_ten_minutes() -> None:
    liveness = Liveness(Controller(reconcile_at_once))
    assert liveness.problem() is None, "an operator that waits for the Lease watches nothing"
    liveness.progress("Pod")
    liveness.progress("Service")
    await asyncio.sleep(500)
    liveness.progress("Service")
    assert liveness.problem() is None
    await asyncio.sleep(101)
    assert liveness.problem() == "the watch of Pod made no progress for 601 s"
    liveness.progress("Pod")
    assert liveness.problem() is None


def test_reconcile_that_does_not_end_is_a_problem_and_one_that_waits_is_not() -> None:
    run(reconcile_for_hours())


async def reconcile_for_hours() -> None:
    hang = asyncio.Event()

    async def reconcile(_namespace: str, name: str) -> ReconcileResult:
        if name == "hanging":
            await hang.wait()
        return ReconcileResult(15.0, ready=True)

    controller = Controller(reconcile)
    liveness = Liveness(controller)
    controller.enqueue("logs", "idle")
    await asyncio.sleep(3600)
    assert liveness.problem() is None
    controller.enqueue("logs", "hanging")
    await asyncio.sleep(1799)
    assert liveness.problem() is None
    await asyncio.sleep(2)
    assert "cluster logs/hanging made no progress for 1800 s" in str(liveness.problem())
    hang.set()
    await asyncio.sleep(1)
    assert liveness.problem() is None
    await controller.close()


def test_reconcile_that_makes_progress_for_hours_is_no_problem() -> None:
    """The proof that two replicas are equal reads whole logs, and may take hours."""
    run(progress_for_hours())


async def progress_for_hours() -> None:
    hang = asyncio.Event()

    async def reconcile(_namespace: str, _name: str) -> ReconcileResult:
        await hang.wait()
        return ReconcileResult(15.0, ready=True)

    controller = Controller(reconcile)
    liveness = Liveness(controller)
    controller.enqueue("logs", "large")
    controller.note_progress("logs", "unknown")
    for _ in range(10):
        await asyncio.sleep(1000)
        controller.note_progress("logs", "large")
        assert liveness.problem() is None
    await asyncio.sleep(1801)
    assert "cluster logs/large made no progress for 1800 s" in str(liveness.problem())
    hang.set()
    await asyncio.sleep(1)
    controller.note_progress("logs", "large")
    await asyncio.sleep(3600)
    assert liveness.problem() is None, "progress between two reconciles begins none"
    await controller.close()


async def test_healthz_answers_503_with_the_problem() -> None:
    problems: list[str | None] = [None, "the watch of Pod made no progress for 601 s"]
    async with (
        serve_http("127.0.0.1", 0, lambda: problems.pop(0), CollectorRegistry()) as port,
        ClientSession() as session,
    ):
        for status, text in ((200, "ok\n"), (503, "the watch of Pod")):
            async with session.get(f"http://127.0.0.1:{port}/healthz") as answer:
                assert answer.status == status
                assert (await answer.text()).startswith(text)


async def test_kopf_watch_client_timeout_exceeds_the_server_timeout() -> None:
    unused: Any = None
    registry = make_registry(Controller(reconcile_at_once), unused, "")
    settings = kopf.OperatorSettings()
    for handler in registry._activities.get_all_handlers():
        if str(handler.id).endswith("configure"):
            configure: Any = handler.fn
            await configure(settings=settings)
    watching = settings.watching
    assert watching.server_timeout is not None
    assert watching.client_timeout is not None
    assert watching.client_timeout > watching.server_timeout
    assert watching.connect_timeout is not None
