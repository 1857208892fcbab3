"""Write a preview for a person: stages in their order, then bytes, risk and what is left. Pure.

A *round* is the steps of one plan. A *stage* is the rounds of one change of the cluster's shape, or
those between two changes. The lines of a stage say what changes, not each step: a change of 300
partitions needs thousands of steps.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import TypeVar

from waltz.admin.core.steps import (
    ChangeAssignment,
    CopyReplica,
    CreateReplicas,
    DropReplicas,
    RegisterStorage,
    SwitchOff,
    SwitchOn,
    UnregisterStorage,
    partitions_text,
)
from waltz_operator.core.outside_steps import SetSlot, WriteOutsideAddresses
from waltz_operator.core.preview.duration import MEGABYTES_PER_SECOND, estimate
from waltz_operator.core.preview.forecast import Ending, Preview, ReplicaGain, ReplicaLoss, Round
from waltz_operator.core.shape_change import ShapeChangeKind
from waltz_operator.core.steps import (
    AddFinalizer,
    ApplyObject,
    ClaimPool,
    DeleteObject,
    IssueCertificates,
    ReplacePod,
    RotateAuthority,
    Step,
)

_TITLES = {
    ShapeChangeKind.ADDING_POOL: "pool {} gets its copies",
    ShapeChangeKind.REMOVING_POOL: "pool {} leaves the cluster",
    ShapeChangeKind.MOVING_PARTITIONS: "partitions of pool {} move",
    ShapeChangeKind.REBALANCING: "pool {} is rebalanced by bytes",
    ShapeChangeKind.RETIRING_FOREIGN_GROUP: "foreign group {} leaves the cluster",
}
"""The title of the stage of a change; the braces stand for its pool or foreign group."""

_Replica = TypeVar("_Replica", ReplicaGain, ReplicaLoss)

_PREPARATION = "preparation and repair"
_PREPARING = (
    AddFinalizer,
    ApplyObject,
    ClaimPool,
    IssueCertificates,
    RegisterStorage,
    RotateAuthority,
    SetSlot,
    WriteOutsideAddresses,
)
"""A round that has only steps of these kinds belongs to the stage of the preparation."""

_UNITS = ("bytes", "kB", "MB", "GB", "TB", "PB")


def report(
    shown: Preview,
    *,
    every_step: bool = False,
    megabytes_per_second: float = MEGABYTES_PER_SECOND,
) -> Iterator[str]:
    """Yield the lines of a preview; with ``every_step``, all steps instead of the stages.

    ``megabytes_per_second`` is the rate of copies and comparisons, for the estimated time.
    """
    for reason in shown.awaited:
        yield f"waits first: {reason}"
    if every_step:
        yield from (f"{number}. {step}" for number, step in enumerate(shown.steps, start=1))
    else:
        yield from _stages(shown.rounds)
    if shown.rounds:
        yield ""
        yield from _totals(shown, megabytes_per_second)
    yield from (f"refused: {reason}" for reason in shown.refusals)
    yield from (f"waits: {reason}" for reason in shown.waits)
    if shown.not_updated:
        yield f"not updated: {shown.not_updated}"
    yield _ending(shown)


def _stages(rounds: Iterable[Round]) -> Iterator[str]:
    """Yield the lines of all stages. A round with the title of the stage before it continues it."""
    stages: list[tuple[str, list[Round]]] = []
    for each in rounds:
        title = _title(each)
        if stages and title in (None, stages[-1][0]):
            stages[-1][1].append(each)
        else:
            stages.append((title or _PREPARATION, [each]))
    for number, (name, stage) in enumerate(stages, start=1):
        yield f"{number}. {name}"
        yield from (f"   {line}" for line in _stage(stage))


def _title(performed: Round) -> str | None:
    """Return the title of a round's stage; None if the round continues the stage before it.

    The title is that of the round's change. It is that of the preparation if the round has no
    change, or if its steps only prepare the change.
    """
    # A round that only changes existing objects may follow any step: many steps change the health
    # of replicas, and the operator then changes the disruption budgets.
    if all(isinstance(step, ApplyObject) and not step.new for step in performed.steps):
        return None
    if performed.change is None or all(isinstance(step, _PREPARING) for step in performed.steps):
        return _PREPARATION
    return _TITLES[performed.change.kind].format(performed.change.pool)


def _stage(rounds: Sequence[Round]) -> Iterator[str]:
    """Yield the lines of one stage: objects, storages, replicas, and the quorum meanwhile."""
    steps = [step for each in rounds for step in each.steps]
    yield from _object_lines(steps)
    if volumes := [claim for each in rounds for claim in each.new_claims]:
        yield f"new volumes: {', '.join(volumes)}"
    yield from _other_lines(steps)
    gains = [gain for each in rounds for gain in each.gains]
    losses = [loss for each in rounds for loss in each.losses]
    for storage, gained in _by_storage(gains):
        partitions = partitions_text(sorted({each.partition for each in gained}))
        yield f"storage {storage} gets {partitions}: {_amount_copied(gained)}"
    for storage, lost in _by_storage(losses):
        partitions = partitions_text(sorted({each.partition for each in lost}))
        yield f"storage {storage} gives up {partitions}"
    if gains or losses or any(isinstance(step, ReplacePod) for step in steps):
        copies = max(each.copies for each in rounds)
        copies_text = _counted(copies, "copy", "copies")
        yield f"meanwhile: at most {copies_text} of a partition; {_risk(rounds)}"


def _object_lines(steps: Iterable[Step]) -> Iterator[str]:
    """Yield what happens to objects of Kubernetes; an object that changes twice is named once."""
    # The keys of the inner dictionaries are names in their order, each once.
    by_verb: dict[str, dict[str, None]] = {}
    for step in steps:
        match step:
            case ApplyObject(manifest, new):
                verb, name = "created" if new else "changed", str(manifest.key)
            case DeleteObject(key, _):
                verb, name = "deleted", str(key)
            case ReplacePod(pod, _):
                verb, name = "pods replaced one by one", pod
            case _:
                continue
        by_verb.setdefault(verb, {})[name] = None
    for verb, names in by_verb.items():
        yield f"{verb}: {', '.join(names)}"


def _other_lines(steps: Iterable[Step]) -> Iterator[str]:
    """Yield the steps that no other line of the stage includes.

    Registrations become one line, and so do the partitions that one storage drops.
    """
    # The keys of the inner dictionaries are storages in their order, each once.
    registrations: dict[str, dict[str, None]] = {}
    dropped: dict[tuple[str, bool], set[int]] = {}
    for step in steps:
        match step:
            case ApplyObject() | DeleteObject() | ReplacePod():
                continue
            case CreateReplicas() | SwitchOff() | SwitchOn() | CopyReplica() | ChangeAssignment():
                # These are the steps by which a storage gets or gives up a replica.
                continue
            case RegisterStorage(storage, group, _):
                registrations.setdefault(f"registered in group {group}", {})[storage] = None
            case UnregisterStorage(storage):
                registrations.setdefault("unregistered", {})[storage] = None
            case DropReplicas(storage, partitions, delete_files, _):
                dropped.setdefault((storage, delete_files), set()).update(partitions)
            case _:
                yield str(step)
    for what, storages in registrations.items():
        yield f"{what}: {', '.join(storages)}"
    for (storage, delete_files), listed in dropped.items():
        yield str(DropReplicas(storage, tuple(sorted(listed)), delete_files))


def _by_storage(replicas: Iterable[_Replica]) -> Iterator[tuple[str, list[_Replica]]]:
    """Yield each storage with its replicas, in the order in which the storages occur."""
    by_storage: dict[str, list[_Replica]] = {}
    for each in replicas:
        by_storage.setdefault(each.storage, []).append(each)
    yield from by_storage.items()


def _amount_copied(gains: Sequence[ReplicaGain]) -> str:
    """Return a sentence about how much is copied, such as ``up to 6.4 GB are copied``."""
    known_bytes = sum(each.copied_bytes or 0 for each in gains)
    num_unknown = sum(each.copied_bytes is None for each in gains)
    unknown = f"{_counted(num_unknown, 'replica', 'replicas')} of unknown size"
    match known_bytes, num_unknown:
        case 0, 0:
            return "nothing is copied, because there are no transactions"
        case 0, _:
            return f"{unknown} {'is' if num_unknown == 1 else 'are'} copied"
        case _, 0:
            return f"up to {size_text(known_bytes)} are copied"
        case _:
            return f"up to {size_text(known_bytes)} and {unknown} are copied"


def _totals(shown: Preview, megabytes_per_second: float) -> Iterator[str]:
    """Yield the lines about the whole preview: bytes, partitions, time, and risk."""
    partitions = {each.partition for each in shown.gains}
    partitions |= {each.partition for each in shown.losses}
    if shown.gains:
        replicas = _counted(len(shown.gains), "replica", "replicas")
        yield f"copies: {replicas}, {_amount_copied(shown.gains)}"
    elif not shown.losses:
        yield "copies: none; no partition changes its storages"
    if shown.losses:
        yield f"given up: {_counted(len(shown.losses), 'replica', 'replicas')}"
    if partitions:
        yield f"affected: {partitions_text(sorted(partitions))}"
    if (time := estimate(shown.rounds, megabytes_per_second)) is not None:
        yield f"time: {time}"
    if shown.spare_before is not None:
        yield f"risk now: {_spare_text(shown.spare_before)}"
    yield f"risk during the plan: {_risk(shown.rounds)}"
    after = shown.rounds[-1].spare_after
    if after is not None:
        yield f"risk afterwards: {_spare_text(after)}"


def _risk(rounds: Sequence[Round]) -> str:
    """Return the text about how many storages may fail.

    The text has the lowest of the numbers after each round. If a moment within a round is worse,
    the text has the number of that moment, too.
    """
    between = min((r.spare_after for r in rounds if r.spare_after is not None), default=None)
    worst = min((r.spare for r in rounds if r.spare is not None), default=None)
    if between is None or worst is None:
        return "not known, because the replicas are not observed"
    if worst >= between:
        # No moment within a round is worse than the moments after the rounds.
        return _spare_text(worst)
    return f"{_spare_text(between)}; briefly, {_spare_text(worst)}"


def _spare_text(spare: int) -> str:
    """Return the text for a number of spare storages, as `replicas.spare_storages` returns it."""
    if spare < 0:
        return "a partition has no quorum and takes no appends"
    storages = _counted(spare, "storage", "storages")
    return f"any {storages} may fail" if spare else "no storage may fail"


def _counted(count: int, singular: str, plural: str) -> str:
    """Return a number with its noun, such as ``1 replica`` or ``2 replicas``."""
    return f"{count} {singular if count == 1 else plural}"


def _ending(shown: Preview) -> str:
    """Return the last line, about the reason why there are no more steps."""
    match shown.ending:
        case Ending.COMPLETE if not shown.rounds:
            return "nothing to do: the cluster is as its resources specify"
        case Ending.COMPLETE:
            return "then the cluster is as its resources specify"
        case Ending.WAITS:
            return "the operator waits until these reasons no longer hold"
        case Ending.REFUSED:
            return "the operator stops here until a person acts"
        case Ending.UNFINISHED:
            return "the preview ends here; the operator would go on"


def size_text(count: int) -> str:
    """Return a number of bytes in a decimal unit, such as ``6.4 GB``."""
    amount, unit = float(count), 0
    # From 999.95 on, the text with one decimal place would be 1000.0.
    while amount >= 999.95 and unit < len(_UNITS) - 1:
        amount, unit = amount / 1000, unit + 1
    return f"{amount:.1f} {_UNITS[unit]}" if unit else f"{count} bytes"
