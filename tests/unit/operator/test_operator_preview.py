"""Previews of single changes, and the lines that a report has for them."""

from __future__ import annotations

import pytest

from tests.support.healing_world import HealingWorld
from tests.support.operator_world import cluster_resource, pool_resource
from tests.support.rolling_world import RollingWorld
from tests.unit.operator.test_operator_plan_properties import reach
from waltz_operator.core.preview import Ending, Preview, ReplicaGain, ReplicaLoss, preview, report
from waltz_operator.core.preview.duration import estimate
from waltz_operator.core.preview.forecast import Round
from waltz_operator.core.preview.replicas import size_of_partition, spare_storages
from waltz_operator.core.preview.report import size_text
from waltz_operator.core.shape_change import ShapeChange, ShapeChangeKind
from waltz_operator.core.steps import CreateMetadata, ReplacePod

POOLS = "abc"
ROLL = ["a-storage-0", "b-storage-0", "c-storage-0"]


def new_world() -> HealingWorld:
    """Return a cluster of three pools with one storage each, of which nothing exists."""
    return HealingWorld(cluster_resource(), [pool_resource(name) for name in POOLS])


def running() -> HealingWorld:
    world = new_world()
    reach(world)
    return world


def shown_of(world: RollingWorld) -> Preview:
    return preview(world.desired(), world.observed())


def replaced(shown: Preview) -> list[str]:
    return [step.pod for step in shown.steps if isinstance(step, ReplacePod)]


def test_preview_of_a_running_cluster_has_nothing_to_do() -> None:
    shown = shown_of(running())
    assert (shown.rounds, shown.ending, shown.spare_before) == ((), Ending.COMPLETE, 1)
    assert list(report(shown)) == ["nothing to do: the cluster is as its resources specify"]


def test_preview_of_a_new_cluster_ends_with_replicas_on_every_storage() -> None:
    shown = shown_of(new_world())
    assert shown.ending is Ending.COMPLETE
    assert sum(isinstance(step, CreateMetadata) for step in shown.steps) == 1
    assert len(shown.gains) == 4 * len(POOLS)
    assert all(gain.copied_bytes == 0 for gain in shown.gains)
    assert shown.losses == ()
    lines = list(report(shown))
    assert (
        f"copies: {4 * len(POOLS)} replicas, nothing is copied, because there are no transactions"
        in lines
    )
    assert "risk afterwards: any 1 storage may fail" in lines
    assert lines[-1] == "then the cluster is as its resources specify"


def test_preview_of_a_roll_replaces_each_storage_once_and_moves_nothing() -> None:
    world = running()
    assert world.cluster is not None
    world.cluster["spec"]["images"] = {"storage": "new"}
    shown = shown_of(world)
    assert shown.ending is Ending.COMPLETE
    assert replaced(shown) == ROLL
    assert (shown.gains, shown.losses) == ((), ())
    lines = list(report(shown))
    assert f"   pods replaced one by one: {', '.join(ROLL)}" in lines
    assert "copies: none; no partition changes its storages" in lines
    assert "risk now: any 1 storage may fail" in lines
    assert "risk during the plan: any 1 storage may fail; briefly, no storage may fail" in lines


def test_preview_of_a_roll_with_a_storage_that_does_not_answer_replaces_no_other() -> None:
    """Nothing that is broken becomes healthy by itself, so the operator would wait."""
    world = running()
    assert world.cluster is not None
    world.cluster["spec"]["images"] = {"storage": "new"}
    world.down.add(world.address("b-storage-0"))
    shown = shown_of(world)
    assert shown.ending is Ending.WAITS
    assert shown.spare_before == 0
    assert not {"a-storage-0", "c-storage-0"} & {*replaced(shown)}
    assert list(report(shown))[-1] == "the operator waits until these reasons no longer hold"


def test_preview_of_a_volume_replacement_ends_with_the_same_storages() -> None:
    world = running()
    world.request("a-storage-0")
    shown = shown_of(world)
    assert shown.ending is Ending.COMPLETE, shown.waits
    assert shown.rounds
    last = shown.rounds[-1]
    assert last.spare_after == 1
    spares = [each.spare for each in shown.rounds if each.spare is not None]
    assert min(spares) == 0, "one storage is absent, and is counted once"


def test_preview_names_a_wait_that_never_ends_only_at_its_end() -> None:
    """One of several waits ends during the preview, the others do not."""
    world = running()
    assert world.cluster is not None
    world.cluster["spec"]["pools"] = [*POOLS, "d"]
    world.stop_pod("b-storage-0")
    shown = shown_of(world)
    assert shown.ending is Ending.WAITS
    assert any("pods ready" in wait for wait in shown.awaited), shown.awaited
    assert "StoragePool d does not exist: create it" in shown.waits
    assert not {*shown.awaited} & {*shown.waits}


def test_spare_storages_counts_replicas_that_answer_and_take_part() -> None:
    world = running()
    assert spare_storages(world.replicas()) == 1
    world.down.add(world.address("a-storage-0"))
    assert spare_storages(world.replicas()) == 0
    world.down.add(world.address("b-storage-0"))
    assert spare_storages(world.replicas()) == -1


def test_size_of_a_partition_without_a_report_is_unknown() -> None:
    replicas = running().replicas()
    assert size_of_partition(replicas, 0, ["nowhere:1"]) is None
    assert size_of_partition(replicas, 0, []) is None


@pytest.mark.parametrize(
    ("count", "text"),
    [
        (0, "0 bytes"),
        (999, "999 bytes"),
        (1000, "1.0 kB"),
        (999_949, "999.9 kB"),
        (999_950, "1.0 MB"),
        (6_400_000_000, "6.4 GB"),
        (2 * 10**18, "2000.0 PB"),
    ],
)
def test_size_text_has_a_decimal_unit(count: int, text: str) -> None:
    assert size_text(count) == text


def _gaining(*sizes: int | None, spare: int = 1, after: int = 1) -> Preview:
    gains = tuple(ReplicaGain(number, "d:1", size) for number, size in enumerate(sizes))
    done = Round((ReplacePod("a-storage-0", "u"),), None, gains, (), spare, after, 4)
    return Preview((done,), Ending.COMPLETE, 1, (), (), ())


@pytest.mark.parametrize(
    ("sizes", "copied"),
    [
        ((1000, 2500), "up to 3.5 kB are copied"),
        ((1000, None), "up to 1.0 kB and 1 replica of unknown size are copied"),
        ((None, None), "2 replicas of unknown size are copied"),
        ((0, None), "1 replica of unknown size is copied"),
        ((0, 0), "nothing is copied, because there are no transactions"),
    ],
)
def test_report_says_how_much_is_copied(sizes: tuple[int | None, ...], copied: str) -> None:
    lines = list(report(_gaining(*sizes)))
    assert f"copies: 2 replicas, {copied}" in lines
    assert f"   storage d:1 gets partitions 0-1: {copied}" in lines


def test_report_of_a_single_replica_has_no_plural() -> None:
    gain, loss = ReplicaGain(3, "d:1", 5), ReplicaLoss(3, "a:1")
    done = Round((ReplacePod("a-storage-0", "u"),), None, (gain,), (loss,), 0, 0, 1)
    lines = list(report(Preview((done,), Ending.COMPLETE, 0, (), (), ())))
    assert "copies: 1 replica, up to 5 bytes are copied" in lines
    assert "given up: 1 replica" in lines
    assert "   meanwhile: at most 1 copy of a partition; no storage may fail" in lines


@pytest.mark.parametrize(
    ("spare", "after", "risk"),
    [
        (1, 1, "any 1 storage may fail"),
        (2, 2, "any 2 storages may fail"),
        (0, 1, "any 1 storage may fail; briefly, no storage may fail"),
        (-1, 0, "no storage may fail; briefly, a partition has no quorum and takes no appends"),
    ],
)
def test_report_says_which_failures_the_plan_survives(spare: int, after: int, risk: str) -> None:
    lines = list(report(_gaining(1, spare=spare, after=after)))
    assert f"risk during the plan: {risk}" in lines
    assert f"   meanwhile: at most 4 copies of a partition; {risk}" in lines


@pytest.mark.parametrize(
    ("shown", "lines"),
    [
        (
            Preview((), Ending.REFUSED, None, (), (), ("too few copies",)),
            ["refused: too few copies", "the operator stops here until a person acts"],
        ),
        (
            Preview((), Ending.WAITS, None, ("a pod starts",), ("a volume",), ()),
            [
                "waits first: a pod starts",
                "waits: a volume",
                "the operator waits until these reasons no longer hold",
            ],
        ),
        (
            Preview((), Ending.UNFINISHED, None, (), (), ()),
            ["the preview ends here; the operator would go on"],
        ),
    ],
)
def test_report_of_a_preview_without_steps_says_why(shown: Preview, lines: list[str]) -> None:
    assert list(report(shown)) == lines


@pytest.mark.parametrize(
    ("sizes", "text"),
    [
        ((), "about 1 minute, at 50 MB/s for copies and comparisons"),
        ((60 * 50 * 10**6,), "about 2 minutes, at 50 MB/s for copies and comparisons"),
        ((88 * 3 * 10**9, 0), "about 89 minutes, at 50 MB/s for copies and comparisons"),
        ((180 * 3 * 10**9, None), "at least 3.0 hours, at 50 MB/s for copies and comparisons"),
    ],
)
def test_estimate_is_the_time_of_all_bytes_and_of_the_steps(
    sizes: tuple[int | None, ...], text: str
) -> None:
    change = ShapeChange(ShapeChangeKind.ADDING_POOL, "d", "pool d", 3)
    changing = Round((), change, (), (), 1, 1, 3, transfers=sizes)
    assert estimate([changing], 50.0) == text


def test_estimate_leaves_out_what_is_no_change_of_shape() -> None:
    assert estimate([Round((), None, (), (), 1, 1, 3, transfers=(10**12,))], 50.0) is None
