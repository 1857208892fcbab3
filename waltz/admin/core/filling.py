"""How a replica that is switched off gets what its peers hold, before servers use it. Pure.

Only a replica that no vote counts may be filled this way, because filling begins by cutting it to
its own low-water mark, and what it has acknowledged above that would be forgotten in silence.
"""

from __future__ import annotations

from waltz.admin.core.replicas import (
    Observed,
    PartitionView,
    absence,
    ailment,
)
from waltz.admin.core.steps import Fill, Hold, Step, SwitchOff, SwitchOn, Wait


def fill(
    observed: Observed, view: PartitionView, destination: str, *, source: str | None = None
) -> Step | Wait | None:
    """Return what is next to fill the replica on ``destination``, None once it is filled.

    It is filled when it reaches to where the source's present session began, or almost, and, if it
    is not assigned yet, has nothing above its own mark. Without ``source`` the replica that has got
    furthest is copied.
    """
    if problem := observed.storage_problem(destination):
        return Wait(f"storage {destination} does not answer: {problem}")
    held = observed.held(destination, view.partition)
    if held is None:
        return Hold(destination, view.partition)
    chosen = source or _best_source(observed, view, destination)
    if chosen is None:
        return Wait(f"no healthy replica of partition {view.partition} can be copied")
    giver = observed.held(chosen, view.partition)
    if giver is None:
        why = observed.storage_problem(chosen) or "it does not hold it"
        return Wait(f"partition {view.partition} cannot be copied from storage {chosen}: {why}")
    if held.max_transaction_id is None:
        return Wait(f"storage {destination} does not say where partition {view.partition} ends")
    # Servers of Waltz 0.13.2 trust what a new replica brings along, even above its mark.
    clean = destination in view.replicas or held.max_transaction_id <= held.low_water_mark
    lag = giver.local_low_water_mark - held.max_transaction_id
    if clean and lag <= observed.lag_allowed:
        return None
    if held.readable or held.writable:
        return SwitchOff(destination, view.partition)
    return Fill(chosen, destination, view.partition)


def switch_on(
    observed: Observed, view: PartitionView, storage: str
) -> Hold | SwitchOn | Wait | None:
    """Return what is next to let servers use the replica on ``storage``, None if they can."""
    problem = absence(observed, view, storage)
    if problem is None:
        return None
    if observed.storage_problem(storage) is not None:
        return Wait(problem)
    held = observed.held(storage, view.partition)
    if held is None:
        return Hold(storage, view.partition)
    return Wait(problem) if held.available else SwitchOn(storage, view.partition)


def _best_source(observed: Observed, view: PartitionView, destination: str) -> str | None:
    marks = {
        storage: held.local_low_water_mark
        for storage in sorted(view.replicas - {destination})
        if (held := observed.held(storage, view.partition)) is not None
        and ailment(observed, view, storage) is None
    }
    return max(marks, key=lambda storage: marks[storage], default=None)
