"""What every part of a simulated cluster uses: time, history, and the failure of the run."""

from __future__ import annotations

from dataclasses import dataclass

from tests.sim.history import History
from tests.sim.loop_clock import LoopClock
from tests.sim.run_failure import RunFailure


@dataclass(frozen=True, slots=True)
class RunEnvironment:
    """The environment of one run. Each part has its own random source besides."""

    clock: LoopClock
    history: History
    failure: RunFailure
