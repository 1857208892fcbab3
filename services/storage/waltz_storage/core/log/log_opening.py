"""Pure. Open and remove the files of a log (spec/disk.md section 8).

Files are used only through the `Disk` that the caller passes. `log_recovery` finds the records of
each segment. This module checks all files of the log before it changes any of them: a partition
that is refused keeps its files. There are two exceptions:

* The remains of an interrupted creation of a segment, which have no records, are removed first.
* If the directory was replaced by an older copy of itself, such as a backup, this may be noticed
  only after the invalid bytes at the log's end were removed (`_check_flushed_record`).

A partition is refused by one of two errors:

* PartitionDamaged: files are missing, unreadable or invalid.
* PartitionUnopened: this process cannot open a file now, for example because it has too many open
  files. That says nothing about the records.
"""

from __future__ import annotations

from itertools import zip_longest

from waltz_storage.core.disk import Disk, DiskFile, changing
from waltz_storage.core.errors import PartitionDamaged, PartitionUnopened
from waltz_storage.core.log.flushed_end import (
    FlushedEnd,
    FlushedMark,
    KnownLog,
    NoFlushedMark,
)
from waltz_storage.core.log.log_recovery import check_header, recover_segment
from waltz_storage.core.log.log_segments import LogOptions, LogSegments
from waltz_storage.core.log.opening_errors import NOT_DAMAGE
from waltz_storage.core.log.partition_log import PartitionLog
from waltz_storage.core.log.segment_files import (
    NEW_SUFFIX,
    LogIdentity,
    SegmentBounds,
    SegmentFiles,
    create_files,
    open_files,
)
from waltz_storage.core.log.segment_format import DATA_SUFFIX, HEADER_BYTES, INDEX_SUFFIX, Damage
from waltz_storage.core.log.segment_scan import SegmentPlan
from waltz_storage.core.log.tail_segment import TailSegment, apply_plan

_NO_MARK = NoFlushedMark()


def open_log(
    disk: Disk,
    identity: LogIdentity,
    options: LogOptions,
    known: KnownLog,
    mark: FlushedMark = _NO_MARK,
) -> PartitionLog:
    """Open the log in ``identity.directory`` and recover its end; create it if it has no files.

    ``known`` is what the control files record about the log; segment files that contradict it are
    reported as damaged. The log reports to ``mark`` up to which record it is flushed. Raises
    PartitionDamaged or PartitionUnopened, before it changes any file except as the beginning of
    this module describes. Raises NoSpace and DiskFailed.
    """
    with changing(f"opening of the log in {identity.directory}"):
        _check_files(disk, identity, known)
        if not disk.exists(identity.directory):
            disk.make_directory(identity.directory)
            disk.flush_directory("")
        first_ids = _remove_remains(disk, identity)
        if not first_ids:
            create_files(disk, identity, first_id=0, now_ms=options.now_ms()).close()
            first_ids = [0]
        # All segments are checked before any of them is changed.
        if first_ids[0] != 0:
            path = identity.path(0, DATA_SUFFIX)
            raise PartitionDamaged(identity.partition, path, 0, "the first segment is missing")
        plans = [
            _plan(disk, identity, first_id, known, next_first_id)
            for first_id, next_first_id in zip_longest(first_ids, first_ids[1:])
        ]
        # The last process may have been killed before it flushed the directory. Without this flush,
        # a later loss of power could remove a segment with records that this process has
        # acknowledged by then, or bring back one that a truncation has removed.
        disk.flush_directory(identity.directory)
        sealed = []
        for plan in plans[:-1]:
            files, bounds = _apply(disk, identity, plan, is_last=False)
            files.close()
            sealed.append(bounds)
        files, bounds = _apply(disk, identity, plans[-1], is_last=True)
        tail = TailSegment(files, bounds, options.segment_threshold, options.allocate_bytes)
        damaged = [transaction_id for plan in plans for transaction_id in plan.damaged]
        log = PartitionLog(LogSegments(disk, identity, options, sealed, tail), mark, damaged)
    if known.flushed is not None:
        _check_flushed_record(log, known.flushed)
    return log


def remove_log(disk: Disk, identity: LogIdentity) -> bool:
    """Remove all files of a log, damaged or not; the directory stays.

    Return whether there were files. The newest segment is removed first, and the index of a segment
    is emptied before the data file is removed, as in `segment_files.remove_files`. So a crash at
    any step leaves files that `open_log` opens, if it could open the log before
    (`test_removal_interrupted_at_any_step_leaves_a_partition_that_can_be_assigned`). Raises
    DiskFailed.
    """
    with changing(f"removal of the log in {identity.directory}"):
        if not disk.exists(identity.directory):
            return False
        suffixes = (DATA_SUFFIX, INDEX_SUFFIX, NEW_SUFFIX)
        names = [name for name in disk.names(identity.directory) if name.endswith(suffixes)]
        # In this order the newest segment comes first, and ``.seg`` comes before ``.idx``.
        for name in sorted(names, reverse=True):
            index = name.removesuffix(DATA_SUFFIX) + INDEX_SUFFIX
            if name.endswith(DATA_SUFFIX) and index in names:
                _empty_index(disk, f"{identity.directory}/{index}")
            disk.remove(f"{identity.directory}/{name}")
            disk.flush_directory(identity.directory)
    return bool(names)


def _empty_index(disk: Disk, path: str) -> None:
    """Remove all entries of an index durably; do nothing if the file cannot be opened."""
    try:
        index = disk.open(path)
    except OSError:
        # The partition may be refused for this reason, and its files are removed all the same.
        return
    try:
        index.truncate(HEADER_BYTES)
        index.flush()
    finally:
        index.close()


def _check_files(disk: Disk, identity: LogIdentity, known: KnownLog) -> None:
    """Check that a log that had files still has some.

    Raises PartitionDamaged, PartitionUnopened, OSError.

    A new empty log would vote as if it had never held the records that are lost
    (`test_lost_partition_directory_is_damage`).
    """
    if not known.had_files:
        return
    has_directory = disk.exists(identity.directory)
    if has_directory and any(name.endswith(DATA_SUFFIX) for name in _names(disk, identity)):
        return
    what = "its directory has no segments" if has_directory else "its directory is missing"
    evidence = (
        "the partition has had files"
        if known.last_known_record is None
        else f"the partition has records up to {known.last_known_record}"
    )
    raise PartitionDamaged(
        identity.partition,
        identity.directory,
        0,
        f"{what}, although {evidence}",
    )


def _check_flushed_record(log: PartitionLog, flushed: FlushedEnd) -> None:
    """Check that the log has the record at the flushed mark; raises PartitionDamaged.

    If the log is refused, it is closed.

    If an older copy, from before a truncation, has replaced the directory, the log may be longer
    than before, but has another record at the flushed mark
    (`test_older_directory_of_partition_with_other_records_is_damage`). If the record at the mark or
    its index entry is damaged, the comparison shows nothing about the age of the directory. Then
    the log is not refused, and the record counts as damaged.
    """
    identity = log.identity
    damaged: tuple[int, ...] = ()
    problem = ""
    try:
        # The log has this record: `_plan` refuses a log that ends before it.
        if log.end_at(flushed.last_id) != flushed:
            # With this bound, the check covers one record.
            damaged = log.check(flushed.last_id, max_bytes=0).damaged
            if not damaged:
                problem = "is not the one that was flushed: the directory is an older copy"
    except OSError as error:
        problem = f"cannot be read: {error.strerror}"
    except PartitionDamaged:
        log.release()
        raise
    if problem:
        log.release()
        what = f"record {flushed.last_id} {problem}"
        raise PartitionDamaged(identity.partition, identity.directory, 0, what)
    # If the last record is damaged, the log takes its checksum from the mark, not from the disk.
    log.note_damaged(damaged, flushed)


def _remove_remains(disk: Disk, identity: LogIdentity) -> list[int]:
    """Remove the remains of an interrupted creation; return the first ids of the segments.

    Raises PartitionDamaged, PartitionUnopened, OSError.

    An index file that has entries but no data file is damage: its records were lost. If it were
    removed, this replica would open an empty log, and would vote as if it had never held those
    records (`test_index_with_entries_but_no_data_file_is_damage`).
    """
    names = set(_names(disk, identity))
    first_ids = []
    for name in sorted(names):
        path = f"{identity.directory}/{name}"
        stem = name.partition(".")[0]
        if name.endswith(NEW_SUFFIX):
            disk.remove(path)
        elif name == stem + DATA_SUFFIX and stem.isdecimal():
            first_ids.append(int(stem))
        elif name == stem + INDEX_SUFFIX and stem + DATA_SUFFIX not in names:
            index = _open_to_check(disk, identity, path)
            try:
                size = index.size()
            except OSError as error:
                raise _unreadable(identity, path, error) from error
            finally:
                index.close()
            if size > HEADER_BYTES:
                raise PartitionDamaged(
                    identity.partition,
                    path,
                    HEADER_BYTES,
                    "the index has entries but there is no data file",
                )
            disk.remove(path)
    return first_ids


def _plan(
    disk: Disk, identity: LogIdentity, first_id: int, known: KnownLog, next_first_id: int | None
) -> SegmentPlan:
    """Check one segment without a change; raises PartitionDamaged, PartitionUnopened.

    ``next_first_id`` is the first id of the next segment, None for the last one of the log. The
    segment must end where the next one begins, although Waltz 0.13.2 opens a log with a hole
    between two segments. A replica with a hole could vote for records that it does not have
    (`test_torn_sealed_segment_is_damage`).
    """
    data = _open_to_check(disk, identity, identity.path(first_id, DATA_SUFFIX))
    try:
        index = _open_to_check(disk, identity, identity.path(first_id, INDEX_SUFFIX))
    except BaseException:
        data.close()
        raise
    files = SegmentFiles(data, index)
    # An error below names the file with this suffix: the data file if it concerns both files.
    suffix = INDEX_SUFFIX
    try:
        check_header(files.index, identity.key, identity.partition, first_id)
        suffix = DATA_SUFFIX
        check_header(files.data, identity.key, identity.partition, first_id)
        return recover_segment(files.data, files.index, first_id, known, next_first_id)
    except Damage as damage:
        path = identity.path(first_id, suffix)
        raise PartitionDamaged(identity.partition, path, damage.offset, damage.what) from damage
    except OSError as error:
        raise _unreadable(identity, identity.path(first_id, suffix), error) from error
    finally:
        files.close()


def _unreadable(identity: LogIdentity, path: str, error: OSError) -> PartitionDamaged:
    """Return the damage of a file that was opened but cannot be read."""
    return PartitionDamaged(identity.partition, path, 0, f"it cannot be read: {error.strerror}")


def _open_to_check(disk: Disk, identity: LogIdentity, path: str) -> DiskFile:
    """Open a file of a segment, which is only read; raises PartitionDamaged, PartitionUnopened."""
    try:
        return disk.open(path)
    except OSError as error:
        raise _unopened(identity, path, "a segment", error) from error


def _names(disk: Disk, identity: LogIdentity) -> list[str]:
    """Return the names in the directory of a log; raises PartitionDamaged, PartitionUnopened."""
    try:
        return disk.names(identity.directory)
    except OSError as error:
        raise _unopened(identity, identity.directory, "the directory", error) from error


def _unopened(
    identity: LogIdentity, path: str, what: str, error: OSError
) -> PartitionDamaged | PartitionUnopened:
    """Return why a partition is refused if ``path`` cannot be opened; ``what`` describes it."""
    advice = NOT_DAMAGE.get(error.errno or 0)
    if advice is not None:
        why = error.strerror or str(error)
        return PartitionUnopened(identity.partition, path, why, advice)
    what_failed = f"{what} cannot be opened: {error.strerror}"
    return PartitionDamaged(identity.partition, path, 0, what_failed)


def _apply(
    disk: Disk, identity: LogIdentity, plan: SegmentPlan, *, is_last: bool
) -> tuple[SegmentFiles, SegmentBounds]:
    """Change the files of one segment as ``plan`` says; return them, open, and its bounds."""
    files = open_files(disk, identity, plan.first_id)
    try:
        return files, apply_plan(files, plan, is_last=is_last)
    except BaseException:
        files.close()
        raise
