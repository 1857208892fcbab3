"""Read the CPU time of processes. Touches /proc."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path

_TICKS_PER_SECOND = os.sysconf("SC_CLK_TCK")
"""The unit of CPU times in /proc."""


@dataclass(frozen=True, slots=True)
class CpuTime:
    """The CPU time that a process has used, user and system together.

    ``parent`` is the id of its parent. ``children_seconds`` is the CPU time of its children that
    have ended.
    """

    parent: int
    own_seconds: float
    children_seconds: float


def cpu_time(pid: int) -> CpuTime:
    """Return the CPU time of a process. Raises OSError if it does not exist."""
    # The name of the process, in parentheses, may contain spaces. So the fields are counted after
    # the name (proc(5)): 0 is the state, 1 the parent, and 11 to 14 are the times.
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    parent, times = int(fields[1]), [int(field) / _TICKS_PER_SECOND for field in fields[11:15]]
    user, system, children_user, children_system = times
    return CpuTime(parent, user + system, children_user + children_system)
