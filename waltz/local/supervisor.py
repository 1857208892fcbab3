"""Run a local cluster until a signal or a request stops it. Touches signals, a Unix socket.

`waltz.local.control` has the format of requests, and sends them.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import signal
import tempfile
from collections.abc import AsyncIterator, Callable
from pathlib import Path

from waltz.local.cluster import LocalCluster, OnProgress
from waltz.local.control import Control
from waltz.runtime.cluster_file import local_command

UP = "the cluster is up"
"""What the supervisor says when the cluster is up and takes requests."""

_CHECK_SECONDS = 0.5
"""The time between two checks for processes that have ended or started."""


async def supervise(
    cluster: LocalCluster, say: OnProgress, on_up: Callable[[], None] = lambda: None
) -> None:
    """Start the cluster; stop it at a signal (`_on_signals`) or at a request to stop.

    A signal during the start stops the cluster, too. ``say`` is called with a line of text at each
    event; an OSError of ``say`` is ignored. ``on_up`` is called once, when the cluster is up. A
    process that ends is reported, but not started again.

    Raises the errors of `LocalCluster.start`. Raises an error of ``on_up`` after it has stopped the
    cluster.
    """
    say = _ignoring_os_errors(say)
    stop = asyncio.Event()
    starting = asyncio.current_task()
    assert starting is not None
    started = interrupted = False

    def end() -> None:
        """Stop the cluster, or interrupt its start."""
        nonlocal interrupted
        # The loop calls this function a moment after the signal. If the start has ended meanwhile,
        # a cancellation would interrupt what follows the start
        # (test_signal_at_the_end_of_the_start_stops_the_cluster_quietly).
        if started:
            stop.set()
            return
        # A second signal must not interrupt the stop of the processes in `LocalCluster.start`.
        # Otherwise some of them would be left over.
        if not interrupted:
            interrupted = True
            starting.cancel()

    _on_signals(asyncio.get_running_loop(), end)
    try:
        await cluster.start()
    except asyncio.CancelledError:
        if not interrupted:
            raise
        # The cancellation came from `end`, so it is handled here. `LocalCluster.start` has already
        # stopped all processes.
        starting.uncancel()
        return
    started = True
    try:
        async with _serve_control(cluster, stop, say):
            say(UP)
            on_up()
            await _report_changes(cluster, stop, say)
    finally:
        try:
            say("stopping")
        finally:
            await cluster.stop()


def _ignoring_os_errors(say: OnProgress) -> OnProgress:
    """Return a function that calls ``say`` and ignores an OSError.

    The terminal may be gone, or the disk of the log full. That must not stop a cluster that works,
    and it must not prevent the stop of the cluster.
    """

    def say_if_possible(text: str) -> None:
        with contextlib.suppress(OSError):
            say(text)

    return say_if_possible


def _on_signals(loop: asyncio.AbstractEventLoop, react: Callable[[], object]) -> None:
    """Call ``react`` at each SIGTERM and SIGINT, and at each SIGHUP that is not ignored.

    This process gets SIGHUP when its terminal ends. Without a reaction, SIGHUP would end this
    process, but not the processes of the cluster, which have sessions of their own. If this process
    was started by ``nohup``, it ignores SIGHUP.
    """
    signals = [signal.SIGTERM, signal.SIGINT]
    if signal.getsignal(signal.SIGHUP) is not signal.SIG_IGN:
        signals.append(signal.SIGHUP)
    for number in signals:
        loop.add_signal_handler(number, react)


async def _report_changes(cluster: LocalCluster, stop: asyncio.Event, say: OnProgress) -> None:
    """Report processes that end or start, until ``stop`` is set."""
    known = cluster.pids()
    # Whether ``cluster.json`` has every end of a process. `start_one` itself writes each start.
    is_up_to_date = True
    while not stop.is_set():
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(_CHECK_SECONDS):
                await stop.wait()
        now = cluster.pids()
        for name, pid in now.items():
            if pid is None and known[name] is not None:
                command = local_command(cluster.directory, "start", name)
                say(f"{name} has ended; start it with: {command}")
                is_up_to_date = False
            elif pid != known[name]:
                say(f"{name} runs as process {pid}")
        known = now
        if not is_up_to_date:
            # If the disk is full, the next check tries again.
            with contextlib.suppress(OSError):
                cluster.write_description()
                is_up_to_date = True


@contextlib.asynccontextmanager
async def _serve_control(
    cluster: LocalCluster, stop: asyncio.Event, say: OnProgress
) -> AsyncIterator[None]:
    """Serve requests on a Unix socket while the context is open.

    When the context closes, the requests are cancelled and awaited. Otherwise a request could start
    a process after the caller has stopped all processes
    (test_start_in_progress_ends_before_the_cluster_stops).
    """
    requests: set[asyncio.Task[None]] = set()

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Read the one request of a connection, execute it, and answer."""
        task = asyncio.current_task()
        assert task is not None
        requests.add(task)
        task.add_done_callback(requests.discard)
        try:
            line = await reader.readline()
            try:
                request = json.loads(line)
                control, name = Control(request["do"]), request["name"]
            except (ValueError, KeyError, TypeError) as problem:
                say(f"malformed control request: {problem!r}; ignored")
                return
            response = await _execute(cluster, control, name, stop)
            writer.write(json.dumps(response).encode() + b"\n")
            await writer.drain()
        except ConnectionError:
            say("the client of a control request has disconnected")
        finally:
            writer.close()

    # The socket is not in the cluster's directory, whose path may be too long for a socket.
    with tempfile.TemporaryDirectory(prefix="waltz-") as folder:
        path = str(Path(folder) / "control")
        server = await asyncio.start_unix_server(serve, path)
        cluster.control = path
        cluster.write_description()
        try:
            yield
        finally:
            cluster.control = None
            server.close()
            pending = list(requests)
            for request in pending:
                request.cancel()
            await asyncio.gather(*pending, return_exceptions=True)


async def _execute(
    cluster: LocalCluster, request: Control, name: str, stop: asyncio.Event
) -> dict[str, str | None]:
    """Execute a request; return the response (see `waltz.local.control`)."""
    try:
        match request:
            case Control.STOP:
                stop.set()
            case Control.KILL if name in cluster.pids() and cluster.pids()[name] is None:
                return {"error": f"{name} is not running", "remedy": Control.START.value}
            case Control.KILL:
                cluster.kill(name)
            case Control.START:
                await cluster.start_one(name)
    except (LookupError, RuntimeError, OSError) as problem:
        # UnknownProcess, and the errors of starting or killing a process.
        return {"error": str(problem)}
    return {"error": None}
