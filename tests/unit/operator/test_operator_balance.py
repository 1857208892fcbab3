"""Which partitions move so that the volumes of a pool are used evenly."""

from __future__ import annotations

from fractions import Fraction
from itertools import pairwise

from hypothesis import given, settings
from hypothesis import strategies as st

from waltz_operator.core import balance
from waltz_operator.core.balance import (
    TOLERANCE,
    Balancing,
    PlannedMove,
    VolumeUse,
    choose_moves,
    is_improvement,
)


def volume(ordinal: int, capacity: int, *sizes: int) -> VolumeUse:
    """A volume whose partitions have the numbers 100 * ordinal, 100 * ordinal + 1 and so on."""
    return VolumeUse(
        ordinal, capacity, {100 * ordinal + number: size for number, size in enumerate(sizes)}
    )


def balanced(*volumes: VolumeUse) -> Balancing:
    return choose_moves(volumes, {p for each in volumes for p in each.sizes})


def test_balance_one_large_partition_moves_instead_of_many_small_ones() -> None:
    chosen = balanced(volume(0, 100, 2, 2, 2, 2, 2, 10, 20), volume(1, 100))
    assert chosen.moves == (PlannedMove(6, 0, 1, 20),)
    assert chosen.after == (Fraction(20, 100), Fraction(20, 100))


def test_balance_of_uneven_disks_fills_each_to_the_same_share() -> None:
    chosen = balanced(volume(0, 100, *[10] * 6), volume(1, 200))
    assert chosen.after == (Fraction(20, 100), Fraction(40, 200))
    assert [(move.source, move.destination) for move in chosen.moves] == [(0, 1)] * 4


def test_balance_within_the_tolerance_moves_nothing() -> None:
    assert balanced(volume(0, 100, *[1] * 33), volume(1, 100, *[1] * 27)).moves == ()
    assert len(balanced(volume(0, 100, *[1] * 34), volume(1, 100, *[1] * 26)).moves) == 1


def test_balance_of_empty_volumes_moves_nothing() -> None:
    assert balanced(volume(0, 100, 0, 0, 0), volume(1, 100)).moves == ()
    assert balanced(volume(0, 100, 10)).moves == ()


def test_balance_partition_that_would_swap_the_two_shares_stays() -> None:
    """It would move 100 bytes, and the difference would be as large as before."""
    assert balanced(volume(0, 1000, 100), volume(1, 1000)).moves == ()


def test_balance_too_large_partition_moves_only_if_it_halves_the_difference() -> None:
    assert [move.size for move in balanced(volume(0, 100, 16, 4), volume(1, 100)).moves] == [4]
    first, *_ = balanced(volume(0, 100, 14, 5, 1), volume(1, 100)).moves
    assert first.size == 14


def test_balance_partition_that_would_overfill_a_small_volume_stays() -> None:
    """The large volume is used to 50 %, the small one would be to 65 %."""
    assert balanced(volume(0, 1000, 65, 435), volume(1, 100)).moves == ()


def test_balance_smaller_of_two_partitions_with_the_same_effect_moves() -> None:
    assert [move.size for move in balanced(volume(0, 100, 14, 6), volume(1, 100)).moves] == [6]


def test_balance_of_equal_partitions_takes_the_first() -> None:
    assert balanced(volume(0, 100, 5, 5, 5, 5), volume(1, 100)).moves == (
        PlannedMove(0, 0, 1, 5),
        PlannedMove(1, 0, 1, 5),
    )


def test_balance_partition_that_cannot_move_stays() -> None:
    volumes = (volume(0, 100, 20, 10, 10), volume(1, 100))
    moves = choose_moves(volumes, {1, 2}).moves
    assert [move.partition for move in moves] == [1, 2]


def test_balance_next_pair_is_tried_if_no_partition_fits_the_first() -> None:
    chosen = balanced(volume(0, 100, 50), volume(1, 100, 20, 20), volume(2, 100))
    assert chosen.moves == (PlannedMove(100, 1, 2, 20),)


def test_balance_stops_at_the_largest_number_of_moves() -> None:
    sizes = dict.fromkeys(range(3 * balance.MAX_MOVES), 1)
    volumes = (VolumeUse(0, 10**6, sizes), VolumeUse(1, 10**6, {}))
    assert len(choose_moves(volumes, sizes.keys()).moves) == balance.MAX_MOVES


def test_balance_text_has_the_lowest_and_the_highest_share() -> None:
    chosen = balanced(volume(0, 1000, 255, 250), volume(1, 1000))
    assert str(chosen) == (
        "used shares of the volumes: 0.0 % to 50.5 %, afterwards 25.0 % to 25.5 %"
    )


def sums_of_squares(volumes: list[VolumeUse]) -> Fraction:
    return sum((Fraction(each.used**2, each.capacity) for each in volumes), Fraction())


def after(volumes: list[VolumeUse], move: PlannedMove) -> list[VolumeUse]:
    """The volumes after a move."""
    result = []
    for each in volumes:
        sizes = dict(each.sizes)
        if each.ordinal == move.source:
            assert sizes.pop(move.partition) == move.size
        elif each.ordinal == move.destination:
            sizes[move.partition] = move.size
        result.append(VolumeUse(each.ordinal, each.capacity, sizes))
    return result


def shares(volumes: list[VolumeUse]) -> list[Fraction]:
    return [Fraction(each.used, each.capacity) for each in volumes]


@st.composite
def pools(draw: st.DrawFn) -> list[VolumeUse]:
    """Pools of up to 5 storages with disks of other sizes, and few or many partitions."""
    count = draw(st.integers(1, 5))
    largest = draw(st.sampled_from((1, 10, 1000)))
    volumes = []
    for ordinal in range(count):
        capacity = draw(st.sampled_from((1000, 1000, 1500, 10_000)))
        sizes = draw(st.lists(st.integers(0, largest), max_size=12))
        volumes.append(volume(ordinal, capacity, *sizes))
    return volumes


@settings(max_examples=80)
@given(pools(), st.sets(st.integers(0, 500), max_size=3))
def test_balance_each_move_is_a_strict_improvement_and_none_follows_the_last(
    volumes: list[VolumeUse], fixed: set[int]
) -> None:
    movable = {p for each in volumes for p in each.sizes} - fixed
    chosen = choose_moves(volumes, movable)
    assert chosen == choose_moves(volumes, movable), "the choice is deterministic"
    moved = [move.partition for move in chosen.moves]
    assert len(moved) == len({*moved} & movable), "a partition moves at most once"
    states = [volumes]
    for move in chosen.moves:
        source, destination = states[-1][move.source], states[-1][move.destination]
        assert is_improvement(source, destination, move.size)
        states.append(after(states[-1], move))
    for before, then in pairwise(states):
        assert sums_of_squares(then) < sums_of_squares(before)
        assert max(shares(then)) <= max(shares(before))
        assert min(shares(then)) >= min(shares(before))
    assert [*chosen.before] == shares(volumes)
    assert [*chosen.after] == shares(states[-1])
    assert choose_moves(states[-1], movable - {*moved}).moves == ()


@settings(max_examples=15)
@given(st.lists(st.integers(1, 5), min_size=60, max_size=200), st.integers(2, 4))
def test_balance_of_many_small_partitions_ends_within_the_tolerance(
    sizes: list[int], count: int
) -> None:
    volumes = [VolumeUse(0, 5000, dict(enumerate(sizes)))]
    volumes += [VolumeUse(ordinal, 5000 * ordinal, {}) for ordinal in range(1, count)]
    chosen = choose_moves(volumes, frozenset(range(len(sizes))))
    average = Fraction(sum(sizes), sum(each.capacity for each in volumes))
    assert all(abs(share - average) <= average * TOLERANCE for share in chosen.after)
