"""Lock the directory of a local cluster and write its ``cluster.json``. Touches files, processes.

`waltz.local.control` reads this file in other processes.
"""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import time
from collections.abc import Mapping
from pathlib import Path
from typing import IO

from waltz.local.control import NotRunning, find_left_over, read_description
from waltz.local.core.plan import (
    ClusterLayout,
    LocalClusterPlan,
    PlanError,
    cluster_description,
    end_times,
)
from waltz.local.plan_file import make_directory
from waltz.runtime.cluster_file import local_command

_PROBE_S = 5.0
"""How long commands that ask whether a supervisor runs may hold the lock."""
_POLL_S = 0.01


class ClusterRunning(RuntimeError):
    """Another process runs the cluster of this directory, or processes of it are left over."""


class ClusterDirectory:
    """The lock of a cluster's directory, and the description of the cluster while it runs.

    ``layout`` has the paths that the processes of the cluster get. They begin with the resolved
    path of the directory, by which `find_left_over` recognizes the processes, whatever path a
    command names. Errors name ``directory`` as the caller does.
    """

    def __init__(self, directory: Path) -> None:
        self.layout = ClusterLayout(directory.resolve())
        self._shown = directory
        self._lock: IO[str] | None = None
        """The locked file, None while this object has not locked the directory."""
        self._is_described = False
        """Whether this object has written the description."""
        self._ended_at: dict[str, float] = {}
        """When the end of each process that does not run was noticed, in seconds since 1970."""
        self._have_run: set[str] = set()
        """The names of the processes that ran at one of the calls of `describe`."""

    @property
    def is_locked(self) -> bool:
        """Whether this object has locked the directory."""
        return self._lock is not None

    def lock(self) -> None:
        """Lock the directory, so that no other process runs the same cluster at the same time.

        Raises ClusterRunning if another process runs the cluster, or if a supervisor has died and
        left processes. Raises PlanError, and ControlFailed as `find_left_over` does. After an error
        this object has not locked the directory.
        """
        make_directory(self._shown)
        # The file is open for reading, too: on NFS, a shared lock fails without it.
        lock = self.layout.lock.open("w+")
        try:
            _lock_exclusively(lock)
        except BlockingIOError as problem:
            lock.close()
            raise ClusterRunning(self._why_running()) from problem
        except OSError as problem:
            lock.close()
            raise PlanError(
                f"cannot lock the directory {self._shown} ({problem.strerror}): its file system "
                "may have no file locks; choose another with --dir"
            ) from problem
        self._lock = lock
        self._ended_at, self._have_run = {}, set()
        try:
            self._refuse_left_over()
        except BaseException:
            self.unlock()
            raise

    def unlock(self) -> None:
        """Delete the ``cluster.json`` of `describe` and unlock the directory, if it is locked."""
        if self._lock is None:
            return
        # Only the file that this object has written. A file that a dead supervisor left may be the
        # only record of processes that still run
        # (test_start_beside_left_over_processes_is_refused_and_keeps_their_ids).
        if self._is_described:
            self.layout.description.unlink(missing_ok=True)
            self._is_described = False
        self._lock.close()
        self._lock = None

    def describe(
        self, plan: LocalClusterPlan, pids: Mapping[str, int | None], control: str | None
    ) -> None:
        """Write ``cluster.json``.

        ``control`` is the path of the supervisor's socket, None until the cluster has started.
        """
        pids = {**pids, "supervisor": os.getpid()}
        self._have_run.update(name for name, pid in pids.items() if pid is not None)
        # A process that has not run yet, because the cluster starts, has not ended either.
        have_run = {name: pid for name, pid in pids.items() if name in self._have_run}
        self._ended_at = end_times(self._ended_at, have_run, time.time())
        description = cluster_description(plan, self.layout, pids, control, self._ended_at)
        path = self.layout.description
        # The file gets its name only when it is complete: other processes may read it at any time.
        part = path.with_suffix(".part")
        part.write_text(json.dumps(description, indent=2) + "\n")
        part.replace(path)
        self._is_described = True

    def _refuse_left_over(self) -> None:
        """Raise ClusterRunning if a supervisor has died, and processes of its cluster still run."""
        directory = self._shown
        left_over: dict[str, int] = {}
        with contextlib.suppress(NotRunning):
            left_over = find_left_over(directory)
        if left_over:
            raise ClusterRunning(
                f"the supervisor of the cluster in {directory} has ended, but these processes "
                f"still run: {', '.join(left_over)}; end them with: "
                f"{local_command(directory, 'down')}"
            )

    def _why_running(self) -> str:
        """Return the text of ClusterRunning; it names the processes that have ended, if any."""
        directory = self._shown
        ended: list[str] = []
        with contextlib.suppress(NotRunning, ValueError):
            description = read_description(directory)
            # Without a socket, the cluster starts: the supervisor itself starts what does not run.
            if description.get("control") is not None:
                processes = description["processes"]
                ended = [name for name, process in processes.items() if process["pid"] is None]
        # While the other process locks or unlocks the directory, there may be no description.
        if not ended:
            stop = local_command(directory, "down")
            return f"the cluster in {directory} is running already; stop it with: {stop}"
        commands = " && ".join(local_command(directory, "start", name) for name in ended)
        return (
            f"the cluster in {directory} is running already, without {', '.join(ended)}; start "
            f"what is missing with: {commands}"
        )


def _lock_exclusively(lock: IO[str]) -> None:
    """Lock the open file ``lock``; raises BlockingIOError if another supervisor has locked it.

    Raises another OSError if the file system has no locks.

    A command that asks whether a supervisor runs, such as ``waltz local status``, holds a shared
    lock for a moment (`waltz.local.control`). It is no reason to refuse a start, so this waits.
    """
    deadline = time.monotonic() + _PROBE_S
    while True:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            # This fails if a supervisor holds the lock.
            fcntl.flock(lock, fcntl.LOCK_SH | fcntl.LOCK_NB)
            fcntl.flock(lock, fcntl.LOCK_UN)
            if time.monotonic() > deadline:
                raise
            time.sleep(_POLL_S)
        else:
            return
