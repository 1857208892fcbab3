"""A supervisor's reports of processes that end, and how a cluster stops."""

from __future__ import annotations

import asyncio
import contextlib
import errno
import json
import signal
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, cast

import pytest

from tests.support.eventually import eventually
from waltz.local import Control, supervisor
from waltz.local.cluster import LocalCluster, _run_to_completion


class Cluster:
    """A cluster whose processes the test ends and starts."""

    def __init__(self) -> None:
        self.directory = Path("/tmp/my w")
        self.running: dict[str, int | None] = {"storage/0": 11, "server/0": 12}
        self.described: list[dict[str, int | None]] = []
        self.killed: list[str] = []

    def kill(self, name: str) -> None:
        self.killed.append(name)

    def pids(self) -> dict[str, int | None]:
        return dict(self.running)

    def write_description(self) -> None:
        self.described.append(self.pids())


async def test_process_that_has_ended_is_reported_and_leaves_the_description(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The commands for a local cluster read ``cluster.json``."""
    monkeypatch.setattr(supervisor, "_CHECK_SECONDS", 0.001)
    cluster, stop, said = Cluster(), asyncio.Event(), list[str]()
    reporting = asyncio.create_task(
        supervisor._report_changes(cast(LocalCluster, cluster), stop, said.append)
    )
    await asyncio.sleep(0)
    cluster.running["server/0"] = None
    await eventually(lambda: said)
    start = "waltz local start server/0 --dir '/tmp/my w'"
    assert said == [f"server/0 has ended; start it with: {start}"]
    assert cluster.described == [{"storage/0": 11, "server/0": None}]
    cluster.running["server/0"] = 13
    await eventually(lambda: len(said) == 2)
    assert said[1] == "server/0 runs as process 13"
    stop.set()
    await reporting


async def test_supervisor_reports_once_that_the_cluster_is_up(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    class Started(Cluster):
        control: str | None = None

        async def start(self) -> None:
            events.append("start")

        async def stop(self) -> None:
            events.append("stop")

    events: list[str] = []
    on_signal: list[Callable[[], object]] = []
    monkeypatch.setattr(supervisor, "_on_signals", lambda _, react: on_signal.append(react))

    def on_up() -> None:
        events.append("up")
        on_signal[-1]()

    cluster = cast(LocalCluster, Started())
    await supervisor.supervise(cluster, lambda _: None, on_up)
    assert events == ["start", "up", "stop"]


async def test_description_that_cannot_be_written_is_written_by_a_later_check(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    class OnFullDisk(Cluster):
        failures = 2

        def write_description(self) -> None:
            if self.failures:
                self.failures -= 1
                raise OSError(errno.ENOSPC, "No space left on device")
            super().write_description()

    monkeypatch.setattr(supervisor, "_CHECK_SECONDS", 0.001)
    cluster, stop, said = OnFullDisk(), asyncio.Event(), list[str]()
    reporting = asyncio.create_task(
        supervisor._report_changes(cast(LocalCluster, cluster), stop, said.append)
    )
    await asyncio.sleep(0)
    cluster.running["server/0"] = None
    await eventually(lambda: cluster.described or reporting.done())
    stop.set()
    await reporting
    assert cluster.described == [{"storage/0": 11, "server/0": None}]
    assert len(said) == 1


@pytest.mark.parametrize(
    "error", [OSError(errno.EIO, "Input/output error"), BrokenPipeError(), RuntimeError()]
)
async def test_supervisor_that_cannot_print_stops_its_processes(
    monkeypatch: pytest.MonkeyPatch, error: Exception
) -> None:
    class Started(Cluster):
        control: str | None = None

        async def start(self) -> None:
            pass

        async def stop(self) -> None:
            events.append("stop")

    def say(text: str) -> None:
        if isinstance(error, OSError) or text == "stopping":
            raise error

    def on_up() -> None:
        events.append("up")
        on_signal[-1]()

    events: list[str] = []
    on_signal: list[Callable[[], object]] = []
    monkeypatch.setattr(supervisor, "_on_signals", lambda _, react: on_signal.append(react))
    ignored = isinstance(error, OSError)
    with contextlib.nullcontext() if ignored else pytest.raises(RuntimeError):
        await supervisor.supervise(cast(LocalCluster, Started()), say, on_up)
    assert events == ["up", "stop"]


async def test_process_that_is_not_running_is_not_killed() -> None:
    cluster, stop = Cluster(), asyncio.Event()
    cluster.running["storage/0"] = None

    async def kill(name: str) -> dict[str, str | None]:
        return await supervisor._execute(cast(LocalCluster, cluster), Control.KILL, name, stop)

    assert await kill("server/0") == {"error": None}
    response = await kill("storage/0")
    assert response == {"error": "storage/0 is not running", "remedy": "start"}
    assert cluster.killed == ["server/0"]


class Child:
    """A process that records its stop."""

    def __init__(self, name: str, stopped: list[str]) -> None:
        self._name, self._stopped = name, stopped

    async def stop(self) -> None:
        await asyncio.sleep(0)
        self._stopped.append(self._name)


class SlowStart(Cluster):
    """A cluster whose `start_one` lasts until `start` is set, also if it is cancelled."""

    def __init__(self) -> None:
        super().__init__()
        self.control: str | None = None
        self.starting, self.start = asyncio.Event(), asyncio.Event()
        self.started = False

    async def start_one(self, name: str) -> None:
        self.starting.set()
        try:
            await self.start.wait()
        finally:
            self.started = True


async def send(path: str, request: bytes) -> bytes:
    reader, writer = await asyncio.open_unix_connection(path)
    writer.write(request + b"\n")
    answer = await reader.readline()
    writer.close()
    return answer


async def test_start_in_progress_ends_before_the_cluster_stops() -> None:
    cluster, said = SlowStart(), list[str]()
    serving = supervisor._serve_control(cast(LocalCluster, cluster), asyncio.Event(), said.append)
    async with serving:
        assert cluster.control is not None
        request = json.dumps({"do": Control.START.value, "name": "zookeeper"}).encode()
        client = asyncio.create_task(send(cluster.control, request))
        await cluster.starting.wait()
    assert cluster.started
    assert await client == b""


async def test_malformed_control_request_is_reported_and_ignored() -> None:
    cluster, said = SlowStart(), list[str]()
    serving = supervisor._serve_control(cast(LocalCluster, cluster), asyncio.Event(), said.append)
    async with serving:
        assert cluster.control is not None
        assert await send(cluster.control, b"[]") == b""
    assert len(said) == 1
    assert said[0].startswith("malformed control request")


async def test_start_that_fails_is_answered_with_its_error() -> None:
    class Full(SlowStart):
        async def start_one(self, name: str) -> None:
            raise OSError(28, "No space left on device")

    cluster = Full()
    answer = await supervisor._execute(
        cast(LocalCluster, cluster), Control.START, "server/0", asyncio.Event()
    )
    assert answer == {"error": "[Errno 28] No space left on device"}


async def test_servers_stop_before_the_storages_that_they_need(tmp_path: Path) -> None:
    cluster, stopped = LocalCluster(tmp_path), list[str]()
    for name in ("storage/0", "server/0", "storage/1", "server/1"):
        cluster._children[name] = cast(Any, Child(name, stopped))
    await cluster.stop()
    assert stopped == ["server/0", "server/1", "storage/0", "storage/1"]


class StartingCluster:
    """A cluster whose start never ends; the cleanup after a cancellation waits for the test."""

    def __init__(self) -> None:
        self.starting, self.cleaning, self.may_end = (asyncio.Event() for _ in range(3))
        self.stopped = False

    async def start(self) -> None:
        try:
            self.starting.set()
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            self.cleaning.set()
            await self.may_end.wait()
            self.stopped = True
            raise


async def test_second_signal_during_the_start_does_not_interrupt_the_cleanup(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    reactions: list[Callable[[], object]] = []
    monkeypatch.setattr(supervisor, "_on_signals", lambda _, react: reactions.append(react))
    cluster = StartingCluster()
    supervising = asyncio.create_task(
        supervisor.supervise(cast(LocalCluster, cluster), lambda _: None)
    )
    await cluster.starting.wait()
    reactions[0]()
    await cluster.cleaning.wait()
    reactions[0]()
    await asyncio.sleep(0)
    cluster.may_end.set()
    await supervising
    assert cluster.stopped


async def test_signal_at_the_end_of_the_start_stops_the_cluster_quietly(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The event loop calls the reaction to a signal some steps after the signal."""

    class Started(Cluster):
        control: str | None = None

        async def start(self) -> None:
            asyncio.get_running_loop().call_soon(reactions[0])

        async def stop(self) -> None:
            stopped.append(True)

    reactions: list[Callable[[], object]] = []
    stopped: list[bool] = []
    monkeypatch.setattr(supervisor, "_on_signals", lambda _, react: reactions.append(react))
    said: list[str] = []
    await supervisor.supervise(cast(LocalCluster, Started()), said.append)
    assert stopped == [True]
    assert said[-1] == "stopping"


@pytest.fixture
def _own_signals() -> Iterator[None]:
    """Restore the reactions to signals after the test."""
    numbers = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP)
    before = {number: signal.getsignal(number) for number in numbers}
    yield
    for number, reaction in before.items():
        signal.signal(number, reaction)


@pytest.mark.usefixtures("_own_signals")
@pytest.mark.parametrize("is_ignored", [False, True])
async def test_end_of_the_terminal_is_a_signal_to_stop_unless_it_is_ignored(
    is_ignored: bool,
) -> None:
    signal.signal(signal.SIGHUP, signal.SIG_IGN if is_ignored else lambda *_: None)
    loop, stop = asyncio.get_running_loop(), asyncio.Event()
    supervisor._on_signals(loop, stop.set)
    try:
        assert (signal.getsignal(signal.SIGHUP) is signal.SIG_IGN) == is_ignored
        signal.raise_signal(signal.SIGHUP)
        if not is_ignored:
            await asyncio.wait_for(stop.wait(), 5)
    finally:
        for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
            loop.remove_signal_handler(number)


async def test_cancelled_start_of_zookeeper_ends_when_its_thread_ends() -> None:
    """Otherwise the caller stops all processes, and then the thread starts another one."""
    begun, may_end = asyncio.Event(), threading.Event()
    loop, ended = asyncio.get_running_loop(), False

    def start() -> None:
        nonlocal ended
        loop.call_soon_threadsafe(begun.set)
        may_end.wait(30)
        ended = True

    starting = asyncio.create_task(_run_to_completion(start))
    await begun.wait()
    starting.cancel()
    done, _ = await asyncio.wait([starting], timeout=0.05)
    may_end.set()
    assert not done
    with pytest.raises(asyncio.CancelledError):
        await starting
    assert ended
