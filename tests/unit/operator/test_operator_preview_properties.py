"""A preview names what the planner then changes: the same replicas, pools, objects, in one order.

The simulated world of the planner's tests performs the plans after the preview. Histories are
random: pools are added, removed and scaled, also half-way through an earlier change.
"""

from __future__ import annotations

import random
from collections import Counter
from dataclasses import dataclass, field

from hypothesis import given, settings
from hypothesis import strategies as st

from tests.support.shape_world import ShapeWorld
from tests.unit.operator.test_operator_shape_properties import (
    check_shape,
    follow,
    running_cluster,
    specify,
)
from waltz.admin.core.steps import ChangeAssignment
from waltz_operator.core.planning import plan
from waltz_operator.core.preview import Ending, Preview, preview
from waltz_operator.core.steps import ApplyObject, ClaimPool, DeleteObject, ReleasePool

_EVENTS = 15


@dataclass
class Performed:
    """What the world has changed."""

    assigned: list[tuple[int, str]] = field(default_factory=list)
    unassigned: list[tuple[int, str]] = field(default_factory=list)
    claimed: list[str] = field(default_factory=list)
    released: list[str] = field(default_factory=list)
    sets: list[str] = field(default_factory=list)


def perform_all(world: ShapeWorld) -> Performed:
    """Let the operator and the world work until the spec is reached; return what has changed."""
    done = Performed()
    for _ in range(800):
        world.settle()
        decided = plan(world.desired(), world.observed())
        if decided.done:
            return done
        for step in decided.steps:
            match step:
                case ChangeAssignment(changes, _):
                    for each in changes:
                        new, old = each.wanted - each.expected, each.expected - each.wanted
                        done.assigned += [(each.partition, s) for s in sorted(new)]
                        done.unassigned += [(each.partition, s) for s in sorted(old)]
                case ClaimPool(pool, _):
                    done.claimed.append(pool)
                case ReleasePool(pool):
                    done.released.append(pool)
                case ApplyObject(manifest, new) if new and manifest.key.kind == "StatefulSet":
                    done.sets.append(f"+{manifest.key.name}")
                case DeleteObject(key, _) if key.kind == "StatefulSet":
                    done.sets.append(f"-{key.name}")
                case _:
                    pass
        assert follow(world, decided, None), decided
    raise AssertionError("not done")


def check_preview(shown: Preview, done: Performed) -> None:
    """Check that the preview has exactly what the world has changed, in its order."""
    assert shown.ending is Ending.COMPLETE, shown
    assert [(each.partition, each.storage) for each in shown.gains] == done.assigned
    assert [(each.partition, each.storage) for each in shown.losses] == done.unassigned
    assert list(shown.claimed_pools) == done.claimed
    assert list(shown.released_pools) == done.released
    sets = []
    for step in shown.steps:
        match step:
            case ApplyObject(manifest, new) if new and manifest.key.kind == "StatefulSet":
                sets.append(f"+{manifest.key.name}")
            case DeleteObject(key, _) if key.kind == "StatefulSet":
                sets.append(f"-{key.name}")
            case _:
                pass
    assert sets == done.sets


@settings(max_examples=15)
@given(st.integers(0, 2**32))
def test_preview_of_a_changed_spec_names_what_the_world_then_changes(seed: int) -> None:
    dice = random.Random(seed)
    world = running_cluster(dice)
    for _ in range(dice.randrange(1, 4)):
        specify(world, dice)
    shown = preview(world.desired(), world.observed())
    check_preview(shown, perform_all(world))
    check_shape(world)


@settings(max_examples=15)
@given(st.integers(0, 2**32))
def test_preview_in_the_middle_of_a_change_names_what_is_left_of_it(seed: int) -> None:
    dice = random.Random(seed)
    world = running_cluster(dice)
    specify(world, dice)
    for _ in range(dice.randrange(_EVENTS)):
        if dice.random() < 0.1:
            specify(world, dice)
        follow(world, plan(world.desired(), world.observed()), dice)
        world.settle()
    shown = preview(world.desired(), world.observed())
    check_preview(shown, perform_all(world))


def test_previews_of_random_specs_have_gains_losses_and_pools() -> None:
    """Otherwise the properties above would hold for a preview that is always empty."""
    seen: Counter[str] = Counter()
    for seed in range(12):
        dice = random.Random(seed)
        world = running_cluster(dice)
        for _ in range(3):
            specify(world, dice)
        shown = preview(world.desired(), world.observed())
        seen["gains"] += len(shown.gains)
        seen["losses"] += len(shown.losses)
        seen["pools"] += len(shown.claimed_pools) + len(shown.released_pools)
    assert min(seen["gains"], seen["losses"], seen["pools"]) > 5, seen
