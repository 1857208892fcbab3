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
from typing import IO

from waltz.local.control import NotRunning, read_description
from waltz.local.core.plan import (
    ClusterLayout,
    LocalClusterPlan,
    cluster_description,
    end_times,
)
from waltz.local.plan_file import make_directory
from waltz.runtime.cluster_file import local_command


class ClusterRunning(RuntimeError):
    """Another process is running the cluster of this directory."""


class ClusterDirectory:
    """The lock of a cluster's directory, and the description of the cluster while it runs."""

    def __init__(self, layout: ClusterLayout) -> None:
        self._layout = layout
        self._lock: IO[str] | None = None
        """The locked file, None while this object has not locked the directory."""
        self._ended_at: dict[str, float] = {}
        """When each process that does not run was found to have ended, in seconds since 1970."""

    @property
    def is_locked(self) -> bool:
        """Whether this object has locked the directory."""
        return self._lock is not None

    def lock(self) -> None:
        """Lock the directory, so that no other process runs the same cluster at the same time.

        Raises ClusterRunning, PlanError.
        """
        make_directory(self._layout.directory)
        lock = self._layout.lock.open("w")
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as problem:
            lock.close()
            raise ClusterRunning(self._why_running()) from problem
        self._lock = lock

    def unlock(self) -> None:
        """Delete ``cluster.json`` and unlock the directory, if it is locked."""
        if self._lock is None:
            return
        self._layout.description.unlink(missing_ok=True)
        self._lock.close()
        self._lock = None

    def describe(
        self, plan: LocalClusterPlan, pids: Mapping[str, int | None], control: str | None
    ) -> None:
        """Write ``cluster.json``; ``control`` is the path of the supervisor's socket."""
        pids = {**pids, "supervisor": os.getpid()}
        self._ended_at = end_times(self._ended_at, pids, time.time())
        description = cluster_description(plan, self._layout, pids, control, self._ended_at)
        path = self._layout.description
        part = path.with_suffix(".part")
        part.write_text(json.dumps(description, indent=2) + "\n")
        part.replace(path)

    def _why_running(self) -> str:
        """Return the text of ClusterRunning; it names the processes that have ended, if any."""
        directory, ended = self._layout.directory, list[str]()
        with contextlib.suppress(NotRunning, ValueError):
            processes = read_description(directory)["processes"]
            ended = [name for name, process in processes.items() if process["pid"] is None]
        # While the other process starts or stops the cluster, there may be no description.
        if not ended:
            stop = local_command(directory, "down")
            return f"the cluster in {directory} is running already; stop it with: {stop}"
        commands = " && ".join(local_command(directory, "start", name) for name in ended)
        return (
            f"the cluster in {directory} is running already, without {', '.join(ended)}; start "
            f"what is missing with: {commands}"
        )
