"""Test that the lock table never misses a taken lock, and rarely overestimates."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from waltz_server.core.appends.lock_table import LockTable

START = 5
_LOCKS = st.sets(st.integers(-(2**31), 2**31 - 1), min_size=1, max_size=3).map(tuple)
_SMALL_LOCKS = st.sets(st.integers(0, 20), min_size=1, max_size=3).map(tuple)
_STEPS = st.lists(st.tuples(st.booleans(), _SMALL_LOCKS | _LOCKS, st.booleans()), max_size=30)


@given(st.sampled_from((1, 2, 7, 40, 30_000)), _STEPS)
def test_lock_table_never_underestimates_exact_locks(
    size: int, steps: list[tuple[bool, tuple[int, ...], bool]]
) -> None:
    table, mark = LockTable(size, START), START
    opened: list[tuple[int, ...]] = []
    taken: dict[int, int] = {}
    seen: set[int] = set()
    for begins, locks, commits in steps:
        seen |= set(locks)
        if begins or not opened:
            table.hold(table.slots(locks))
            opened.append(locks)
        else:
            done = opened.pop(0)
            mark += commits
            table.release(table.slots(done), mark if commits else None)
            taken |= dict.fromkeys(done, mark) if commits else {}
        held = {lock for each in opened for lock in each}
        held_slots = {slot for slots in table.slots(held) for slot in slots}
        for lock in seen:
            slots = table.slots((lock,))
            assert table.any_busy(slots) == (set(*slots) <= held_slots)
            assert table.any_busy(slots) or lock not in held
            assert taken.get(lock, START) <= table.last_taken(slots) <= mark
    assert table.last_taken(()) == -1
    assert not table.any_busy(())


def test_assume_raises_all_marks_and_keeps_open_locks() -> None:
    table = LockTable(30_000, START)
    mine, other = table.slots((1,)), table.slots((2,))
    table.hold(mine)
    table.take_every_lock(9)
    assert table.any_busy(mine)
    assert table.last_taken(mine) == table.last_taken(other) == 9
    table.release(mine, 10)
    assert (table.last_taken(mine), table.last_taken(other)) == (10, 9)
    assert not table.any_busy(mine)
