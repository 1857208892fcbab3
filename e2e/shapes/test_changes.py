"""Test that a cluster changes its shape while a witness (`e2e.witness`) appends and reads.

The changes are those of `e2e.shapes.changes`. Some are reverted, and some are disturbed: a pod is
killed meanwhile.
"""

from __future__ import annotations

import random
import time

import pytest

from e2e.kubectl import CommandFailed, Kubectl
from e2e.shapes.changes import (
    CHANGES,
    ONE_POOL_TO_THREE,
    STORAGES_OF_A_POOL,
    THREE_POOLS_TO_FIVE_TO_THREE,
    ShapeChange,
    await_begun,
    await_shape,
    create,
    pods,
    request,
)
from e2e.witnessing import Witness

_LATEST_KILL_SECONDS = 15.0
"""A pod is killed within this time after a change has begun."""
_PROGRESS_SECONDS = 90


def start(namespace: Kubectl, change: ShapeChange) -> Witness:
    """Create the cluster that ``change`` begins with, and a witness; return the witness."""
    create(namespace, change.shapes[0])
    witness = Witness(namespace)
    witness.start("log")
    return witness


def finish(witness: Witness) -> None:
    """Check that the cluster takes appends, and that no transaction is lost or changed."""
    witness.await_progress(_PROGRESS_SECONDS)
    witness.finish()


@pytest.mark.parametrize("change", CHANGES, ids=lambda change: change.name)
def test_shape_changes_under_load_and_nothing_is_lost(
    namespace: Kubectl, change: ShapeChange
) -> None:
    witness = start(namespace, change)
    for shape in change.shapes[1:]:
        request(namespace, shape)
        await_shape(namespace, shape)
    finish(witness)


@pytest.mark.parametrize("component", ["storage", "server"])
@pytest.mark.parametrize("change", CHANGES, ids=lambda change: change.name)
def test_shape_changes_although_a_pod_is_killed_at_a_random_moment(
    namespace: Kubectl, change: ShapeChange, component: str
) -> None:
    witness = start(namespace, change)
    request(namespace, change.shapes[1])
    time.sleep(random.uniform(0, _LATEST_KILL_SECONDS))
    killed = random.choice(pods(namespace, component))
    namespace.delete("pod", killed, now=True)
    await_shape(namespace, change.shapes[1])
    finish(witness)


@pytest.mark.parametrize(
    "change", [THREE_POOLS_TO_FIVE_TO_THREE, STORAGES_OF_A_POOL], ids=lambda change: change.name
)
def test_change_that_is_reverted_half_way_returns_to_the_earlier_shape(
    namespace: Kubectl, change: ShapeChange
) -> None:
    witness = start(namespace, change)
    request(namespace, change.shapes[1])
    await_begun(namespace)
    request(namespace, change.shapes[0])
    await_shape(namespace, change.shapes[0])
    finish(witness)


def test_growth_of_a_single_copy_cannot_be_reverted_and_completes(namespace: Kubectl) -> None:
    """One of two or three copies is no quorum, so several copies never become a single one."""
    witness = start(namespace, ONE_POOL_TO_THREE)
    first, last = ONE_POOL_TO_THREE.shapes
    request(namespace, last)
    with pytest.raises(CommandFailed, match="allowFewerCopies"):
        request(namespace, first)
    await_shape(namespace, last)
    finish(witness)
