"""Any single fault of one replica's disks, together with one absent replica, loses nothing.

Replicas a and b have acknowledged all transactions; c was down for the last three. Then all
storages end, a's disks get one fault, and only two of the storages start. Either a session opens
that has every acknowledged transaction, or the partition waits until the third storage starts.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from functools import cache, partial

import pytest

from tests.support.three_replicas import P, Trio, Volumes, records
from waltz.testing.disk import MemoryDisk

ACKNOWLEDGED = 8
_BEFORE_LAST_START = 2
"""The number of the copy of `past` that is one generation older than the end: a truncation."""
ABSENT = "b"
"""The other replica that has everything."""

Fault = Callable[[Volumes], Volumes]


@dataclass(slots=True)
class Past:
    """A cluster after its history, the acknowledged records, and earlier copies of a's disks."""

    trio: Trio
    acknowledged: dict[int, bytes]
    copies: list[Volumes] = field(default_factory=list)
    same_session: int = 0
    """The number of the first copy that was made in the last store session."""


@cache
def past(*, two_volumes: bool) -> Past:
    """Return a history with restarts, a truncation and three store sessions."""
    trio = Trio.create(two_volumes=two_volumes)
    found = Past(trio, {})

    def note() -> None:
        found.copies.append(trio.volumes["a"].copy())

    note()
    assert trio.open_session() == {"a", "b", "c"}
    trio.append("abc", records(0, 3, "one"))
    note()
    trio.kill("a")
    trio.start("a")
    note()
    assert trio.open_session() == {"a", "b", "c"}
    trio.append("abc", records(3, 2, "two"))
    trio.append("a", records(5, 3, "lost"))
    note()
    assert trio.open_session() == {"a", "b", "c"}
    assert trio.replica("a").log.max_id == 4
    found.same_session = len(found.copies)
    note()
    trio.kill("c")
    for number in (5, 6, 7):
        trio.append("ab", records(number, 1, "new"))
        note()
    found.acknowledged = trio.content("b")
    assert sorted(found.acknowledged) == list(range(ACKNOWLEDGED))
    for directory in trio.running.values():
        directory.flush_marks()
    return found


def check(
    fault: Fault, *, two_volumes: bool, absent: str = ABSENT, same_server: bool = False
) -> bool:
    """Apply a fault to a's disks and start all storages but one, then that one, too.

    With ``same_server``, the server that had the last session begins the next one. Return whether a
    session opened without the absent storage.
    """
    before = past(two_volumes=two_volumes)
    trio = before.trio.copy()
    if same_server:
        trio.committed = max(before.acknowledged)
    trio.volumes["a"] = fault(trio.volumes["a"])
    trio.start(name for name in "abc" if name != absent)
    members = trio.open_session()
    if members:
        _has_all(before, trio, members)
    else:
        assert trio.waiting_for
    trio.start(absent)
    everyone = trio.open_session()
    assert everyone, f"two replicas have no fault, but the partition waits: {trio.waiting_for}"
    _has_all(before, trio, everyone)
    return bool(members)


def _has_all(before: Past, trio: Trio, members: frozenset[str]) -> None:
    found = trio.content(members)
    lost = [n for n, record in before.acknowledged.items() if found.get(n) != record]
    assert not lost, f"acknowledged transactions are lost: {lost}"


def files(volumes: Volumes) -> Iterator[tuple[bool, str]]:
    """Yield each file: whether it is on the meta volume, and its path."""
    for meta, disk in ((False, volumes.data), (True, volumes.meta)):
        if disk is not None:
            yield from ((meta, name) for name in disk.names("") if name not in disk.directories)
            for directory in sorted(disk.directories - {""}):
                yield from ((meta, f"{directory}/{name}") for name in disk.names(directory))


def disk_of(volumes: Volumes, meta: bool) -> MemoryDisk:
    """Return one of the disks."""
    disk = volumes.meta if meta else volumes.data
    assert disk is not None
    return disk


def flipped(meta: bool, path: str, place: int, bit: int) -> Fault:
    """Return the fault that one bit of a file flips."""

    def apply(volumes: Volumes) -> Volumes:
        disk = disk_of(volumes, meta)
        disk.damage(path, place, bytes((disk.content(path)[place] ^ 1 << bit,)))
        return volumes

    return apply


def older_data(copy: Volumes, volumes: Volumes) -> Volumes:
    """Restore the data volume from a copy."""
    return Volumes(copy.copy().data, volumes.meta)


def older_meta(copy: Volumes, volumes: Volumes) -> Volumes:
    """Restore the meta volume from a copy."""
    return Volumes(volumes.data, copy.copy().meta)


def older_storage(copy: Volumes, _: Volumes) -> Volumes:
    """Restore both volumes from a copy."""
    return copy.copy()


def flips(bits: range, *, two_volumes: bool) -> int:
    """Check a flip of ``bits`` of every byte of every file; return the number of cases."""
    cases = 0
    volumes = past(two_volumes=two_volumes).trio.copy().volumes["a"]
    for meta, path in files(volumes):
        for place in range(len(disk_of(volumes, meta).content(path))):
            for bit in bits:
                check(flipped(meta, path, place, bit), two_volumes=two_volumes)
                cases += 1
    return cases


def test_undamaged_replica_opens_a_session_with_all_records() -> None:
    assert check(lambda volumes: volumes, two_volumes=False)
    assert check(lambda volumes: volumes, two_volumes=True)


def test_one_flipped_bit_of_any_byte_loses_no_committed_record() -> None:
    assert flips(range(5, 6), two_volumes=False) > 1300


@pytest.mark.slow
@pytest.mark.parametrize("bit", [0, 7])
def test_any_one_flipped_bit_loses_no_committed_record(bit: int) -> None:
    assert flips(range(bit, bit + 1), two_volumes=True) > 1300


@pytest.mark.parametrize("absent", ["b", "c"])
@pytest.mark.parametrize("two_volumes", [False, True])
def test_one_lost_file_or_directory_loses_no_committed_record(
    absent: str, *, two_volumes: bool
) -> None:
    volumes = past(two_volumes=two_volumes).trio.copy().volumes["a"]
    found = list(files(volumes))
    assert len(found) >= 6

    def remove(meta: bool, path: str) -> Fault:
        def apply(volumes: Volumes) -> Volumes:
            disk_of(volumes, meta).remove(path)
            return volumes

        return apply

    def cut(meta: bool, path: str, size: int) -> Fault:
        def apply(volumes: Volumes) -> Volumes:
            disk_of(volumes, meta).open(path).truncate(size)
            return volumes

        return apply

    def lose_directory(volumes: Volumes) -> Volumes:
        volumes.data.lose_directory(str(P))
        return volumes

    for meta, path in found:
        check(remove(meta, path), two_volumes=two_volumes, absent=absent)
        for size in range(0, len(disk_of(volumes, meta).content(path)), 13):
            check(cut(meta, path, size), two_volumes=two_volumes, absent=absent)
    assert not check(lose_directory, two_volumes=two_volumes, absent="b")
    check(lose_directory, two_volumes=two_volumes, absent=absent)


@pytest.mark.parametrize("absent", ["b", "c"])
@pytest.mark.parametrize("two_volumes", [False, True])
def test_one_lost_disk_loses_no_committed_record(absent: str, *, two_volumes: bool) -> None:
    for fault in (
        lambda _: Volumes(MemoryDisk(), MemoryDisk() if two_volumes else None),
        lambda v: Volumes(MemoryDisk(), v.meta),
        lambda v: Volumes(v.data, MemoryDisk() if two_volumes else None),
    ):
        check(fault, two_volumes=two_volumes, absent=absent)


@pytest.mark.parametrize("absent", ["b", "c"])
def test_one_volume_of_older_snapshot_loses_no_committed_record(absent: str) -> None:
    for copy in past(two_volumes=True).copies:
        check(partial(older_data, copy), two_volumes=True, absent=absent)
        check(partial(older_meta, copy), two_volumes=True, absent=absent)


@pytest.mark.parametrize("absent", ["b", "c"])
@pytest.mark.parametrize("two_volumes", [False, True])
def test_one_storage_of_older_snapshot_loses_no_committed_record(
    absent: str, *, two_volumes: bool
) -> None:
    before = past(two_volumes=two_volumes)
    for copy in before.copies[: before.same_session]:
        check(partial(older_storage, copy), two_volumes=two_volumes, absent=absent)


@pytest.mark.parametrize("absent", ["b", "c"])
@pytest.mark.parametrize("two_volumes", [False, True])
def test_snapshot_of_the_last_session_loses_no_committed_record_while_its_server_runs(
    absent: str, *, two_volumes: bool
) -> None:
    for copy in past(two_volumes=two_volumes).copies:
        fault = partial(older_storage, copy)
        check(fault, two_volumes=two_volumes, absent=absent, same_server=True)


def test_meta_volume_of_previous_generation_is_accepted_but_its_replica_does_not_vote() -> None:
    """Its control file names session 1, although the log has records of session 3."""
    before = past(two_volumes=True)
    trio = before.trio.copy()
    trio.volumes["a"] = older_meta(before.copies[_BEFORE_LAST_START], trio.volumes["a"])
    trio.start("ac")
    restored = trio.replica("a")
    assert (restored.info.session_id, restored.log.max_id) == (1, ACKNOWLEDGED - 1)
    assert trio.metadata.replicas["a"].session_id == 3
    assert trio.open_session() == frozenset(), "only c could vote, and it was down"
    assert trio.content("a") == trio.content("c"), "the log was not cut and filled from c"
    trio.start("b")
    assert trio.open_session() == {"a", "b", "c"}
    for name in "abc":
        assert trio.content(name) == before.acknowledged


def test_data_volume_from_before_a_truncation_is_refused() -> None:
    """The copy has a record that was removed; the others have acknowledged another one instead."""
    trio = Trio.create(two_volumes=True)
    trio.open_session()
    trio.append("abc", records(0, 3, "one"))
    trio.append("a", records(3, 1, "lost"))
    older = trio.volumes["a"].data.restarted()
    assert trio.open_session() == {"a", "b", "c"}
    trio.append("bc", records(3, 1, "new"))
    acknowledged = trio.content("c")
    for directory in trio.running.values():
        directory.flush_marks()
    trio = trio.copy()
    trio.volumes["a"] = Volumes(older, trio.volumes["a"].meta)
    trio.start("ac")
    assert trio.open_session() == frozenset()
    trio.start("b")
    assert trio.open_session() == {"b", "c"}
    assert trio.content("b") == trio.content("c") == acknowledged
