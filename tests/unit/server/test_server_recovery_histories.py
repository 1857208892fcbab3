"""Test that marks stay valid when sessions end during their recovery."""

from __future__ import annotations

from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.support.replica_histories import World

_ENDS_WELL = 0.4
_REASSIGNED = 0.2


@given(st.integers(0, 2**32))
@settings(max_examples=400)
def test_resolved_mark_never_goes_down_in_a_later_session(seed: int) -> None:
    check_history(seed)


@pytest.mark.slow
@given(st.integers(0, 2**32))
@settings(max_examples=1100)
def test_resolved_mark_never_goes_down_in_more_histories(seed: int) -> None:
    check_history(seed)


def check_history(seed: int) -> None:
    """Check a random history of sessions."""
    random = Random(seed)
    world = World(random, random.choice((3, 3, 4, 5)))
    world.session(all_steps=True)
    for _ in range(random.randint(2, 12)):
        world.session(all_steps=random.random() < _ENDS_WELL)
        if random.random() < _REASSIGNED:
            number = random.randint(min(3, len(world.disks)), len(world.disks))
            world.assigned = tuple(random.sample(sorted(world.disks), number))
