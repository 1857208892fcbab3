"""Read the logs of a local cluster's processes. Touches their files.

A log exists from the first start of its process on. It stays when the cluster is stopped.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import TextIO

from waltz.local.control import NotRunning
from waltz.local.core.plan import ClusterLayout, LocalClusterPlan, PlanError
from waltz.runtime.cluster_file import local_command

_POLL_SECONDS = 0.2


def local_logs(directory: Path, name: str | None) -> dict[str, Path]:
    """Return the logs that exist, by process: that of ``name``, or those of all processes.

    Raises NotRunning if the directory has no cluster, PlanError if the cluster has no process
    ``name`` or its plan cannot be read.
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
    # A supervisor that was started in the background has a log, too.
    names = ("supervisor", *plan.names)
    if name is not None and name not in names:
        raise PlanError(f"there is no process {name!r}; the processes are: {', '.join(names)}")
    wanted = names if name is None else (name,)
    paths = {process: layout.log(process) for process in wanted}
    return {process: path for process, path in paths.items() if path.exists()}


@contextmanager
def open_logs(logs: Mapping[str, Path]) -> Iterator[dict[str, TextIO]]:
    """Open the logs while the context is open; yield the files by process."""
    with ExitStack() as stack:
        yield {
            process: stack.enter_context(path.open(errors="replace"))
            for process, path in logs.items()
        }


def last_lines(log: TextIO, count: int) -> list[str]:
    """Read ``log`` to its end; return the last ``count`` lines."""
    return [line.rstrip("\n") for line in deque(log, maxlen=count)]


def new_lines(logs: Mapping[str, TextIO]) -> Iterator[tuple[str, str]]:
    """Yield each line that is written to a log, with the name of its process; never end.

    Each log is read from its present position. So after `last_lines` no line is left out, even if
    the line was written before this call.
    """
    unfinished = dict.fromkeys(logs, "")
    while True:
        has_new_text = False
        for process, log in logs.items():
            for part in log:
                has_new_text = True
                line = unfinished[process] + part
                # The end of the log may be a part of a line whose rest is written only later.
                is_complete = line.endswith("\n")
                unfinished[process] = "" if is_complete else line
                if is_complete:
                    yield process, line.removesuffix("\n")
        if not has_new_text:
            time.sleep(_POLL_SECONDS)
