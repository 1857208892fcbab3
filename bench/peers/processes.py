"""Start and stop the processes of a peer, read their CPU time. Touches processes and /proc."""

from __future__ import annotations

import asyncio
import contextlib
import signal
import socket
from asyncio.subprocess import DEVNULL, PIPE, STDOUT, Process
from collections.abc import AsyncIterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from bench.cpu_times import cpu_time

_START_SECONDS = 180.0
"""How long a server may take to listen: three brokers in Java need a minute on a busy machine."""
_END_SECONDS = 20.0
"""How long a server may take to end after its signal, until it is killed."""


class CommandFailed(Exception):
    """A command of a peer has failed; the text has the end of its output."""


def free_ports(count: int) -> list[int]:
    """Return ports of the loopback interface that no process uses now."""
    with contextlib.ExitStack() as sockets:
        bound = [sockets.enter_context(socket.socket()) for _ in range(count)]
        for each in bound:
            each.bind(("127.0.0.1", 0))
        return [each.getsockname()[1] for each in bound]


async def run_command(
    *command: str | Path,
    env: Mapping[str, str] | None = None,
    user: str | None = None,
    cwd: Path | None = None,
) -> str:
    """Run a command to its end and return its output. Raises CommandFailed."""
    process = await asyncio.create_subprocess_exec(
        *map(str, command), stdout=PIPE, stderr=STDOUT, env=env, user=user, cwd=cwd
    )
    out, _ = await process.communicate()
    text = out.decode(errors="replace")
    if process.returncode:
        raise CommandFailed(f"{command[0]} ended with {process.returncode}: {text[-2000:].strip()}")
    return text


@dataclass(slots=True)
class Servers:
    """The processes of a peer, in the order in which they were started."""

    processes: list[Process] = field(default_factory=list)

    async def start(
        self,
        command: Sequence[str | Path],
        port: int,
        log: Path,
        *,
        user: str | None = None,
        cwd: Path | None = None,
    ) -> None:
        """Start a server, and wait until it listens on ``port``. Raises CommandFailed."""
        with log.open("wb") as out:
            process = await asyncio.create_subprocess_exec(
                *map(str, command), stdin=DEVNULL, stdout=out, stderr=out, user=user, cwd=cwd
            )
        self.processes.append(process)
        deadline = asyncio.get_running_loop().time() + _START_SECONDS
        while process.returncode is None and asyncio.get_running_loop().time() < deadline:
            with contextlib.suppress(OSError):
                _, writer = await asyncio.open_connection("127.0.0.1", port)
                writer.close()
                return
            await asyncio.sleep(0.05)
        raise CommandFailed(f"{command[0]} does not listen on port {port}: {end_of(log)}")

    def cpu_seconds(self) -> float:
        """Return the CPU time that the servers and their children have used."""
        children: dict[int, list[int]] = {}
        used: dict[int, float] = {}
        for path in Path("/proc").glob("[0-9]*"):
            # A process may end while it is read.
            with contextlib.suppress(OSError):
                pid = int(path.name)
                process_time = cpu_time(pid)
                children.setdefault(process_time.parent, []).append(pid)
                used[pid] = process_time.own_seconds + process_time.children_seconds
        total, uncounted = 0.0, [process.pid for process in self.processes]
        while uncounted:
            pid = uncounted.pop()
            total += used.get(pid, 0.0)
            uncounted += children.get(pid, [])
        return total

    async def stop(self, stop_signal: signal.Signals = signal.SIGTERM) -> None:
        """Send the signal to all servers, then wait until each has ended."""
        for process in self.processes:
            with contextlib.suppress(ProcessLookupError):
                process.send_signal(stop_signal)
        for process in self.processes:
            try:
                await asyncio.wait_for(process.wait(), _END_SECONDS)
            except TimeoutError:
                process.kill()
                await process.wait()
        self.processes.clear()


def end_of(log: Path) -> str:
    """Return the last lines of a log file."""
    return log.read_text(errors="replace")[-2000:].strip()


@contextlib.asynccontextmanager
async def running_servers(
    stop_signal: signal.Signals = signal.SIGTERM,
) -> AsyncIterator[Servers]:
    """Yield a `Servers` to start servers with; at the end, stop these by ``stop_signal``."""
    servers = Servers()
    try:
        yield servers
    finally:
        await servers.stop(stop_signal)
