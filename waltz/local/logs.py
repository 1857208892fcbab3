"""Read the logs of a local cluster's processes. Touches their files.

A log exists from the first start of its process on. It stays when the cluster is stopped.
"""

from __future__ import annotations

import os
import time
from collections import deque
from collections.abc import Generator, Mapping
from pathlib import Path

from waltz.local.control import NotRunning
from waltz.local.core.plan import ClusterLayout, LocalClusterPlan, PlanError
from waltz.runtime.cluster_file import local_command

_POLL_SECONDS = 0.2


def local_logs(directory: Path, name: str | None) -> dict[str, Path]:
    """Return the logs that exist, by process: that of ``name``, or those of all processes.

    Raises NotRunning if the directory has no cluster, PlanError if it has no process ``name``.
    """
    layout = ClusterLayout(directory.absolute())
    try:
        plan = LocalClusterPlan.from_json(layout.plan.read_text())
    except (FileNotFoundError, NotADirectoryError):
        raise NotRunning(
            f"{directory} has no cluster; start one there with: {local_command(directory, 'up')}"
        ) from None
    except (PlanError, UnicodeDecodeError) as problem:
        why = problem if isinstance(problem, PlanError) else "it is not text"
        raise PlanError(
            f"{layout.plan} is not the plan of a local cluster: {why}; choose another "
            "directory with --dir"
        ) from problem
    names = ("supervisor", *plan.names)
    if name is not None and name not in names:
        raise PlanError(f"there is no process {name!r}; the processes are: {', '.join(names)}")
    wanted = names if name is None else (name,)
    paths = {process: layout.log(process) for process in wanted}
    return {process: path for process, path in paths.items() if path.exists()}


def last_lines(path: Path, count: int) -> list[str]:
    """Return the last ``count`` lines of a file."""
    with path.open(errors="replace") as file:
        return [line.rstrip("\n") for line in deque(file, maxlen=count)]


def new_lines(logs: Mapping[str, Path]) -> Generator[tuple[str, str], None, None]:
    """Yield each line that is written to one of the logs from now on, with its process."""
    files = {name: path.open(errors="replace") for name, path in logs.items()}
    try:
        for file in files.values():
            file.seek(0, os.SEEK_END)
        unfinished = dict.fromkeys(files, "")
        while True:
            any_new = False
            for name, file in files.items():
                for part in file:
                    any_new = True
                    line = unfinished[name] + part
                    complete = line.endswith("\n")
                    unfinished[name] = "" if complete else line
                    if complete:
                        yield name, line.removesuffix("\n")
            if not any_new:
                time.sleep(_POLL_SECONDS)
    finally:
        for file in files.values():
            file.close()
