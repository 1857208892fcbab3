"""The files of a storage that does not run: found and read, never changed. Touches disk."""

from __future__ import annotations

import fcntl
import os
from collections.abc import Iterable, Mapping
from contextlib import ExitStack
from dataclasses import dataclass, replace
from pathlib import Path

from waltz_storage.core.control.control_format import (
    CONTROL_FILE,
    ENTRY_BYTES,
    HEADER_BYTES,
    ControlEntry,
    ControlHeader,
    EntryCorrupted,
    PartitionInfo,
    decode_entry,
    entry_offset,
)
from waltz_storage.core.control.directory_pair import DATA_MARK, META_MARK
from waltz_storage.core.errors import DiskFailed, PartitionDamaged
from waltz_storage.core.log.log_opening import open_log
from waltz_storage.core.log.log_segments import LogOptions
from waltz_storage.core.log.segment_files import LogIdentity
from waltz_storage.core.log.segment_format import (
    DATA_SUFFIX,
    INDEX_SUFFIX,
    Damage,
    FileHeader,
    segment_name,
)
from waltz_storage.inspect.dry_disk import Change, DryDisk, ReadOnlyFile
from waltz_storage.inspect.segment_check import Flaw, SegmentReport, Tail, Windowed, check_segment


class CannotInspect(Exception):
    """There is nothing at that path that can be inspected, or not now; the text says why."""


@dataclass(frozen=True, slots=True)
class Place:
    """What a path names: a storage's directory, one of its partitions, one segment of that.

    ``partitions`` are those that have files; ``first_id`` is the segment's.
    """

    root: Path
    partitions: tuple[int, ...]
    first_id: int | None = None
    whole: bool = False
    """Whether it is all of the storage that is named."""

    def covers(self, partition: int) -> bool:
        """Return whether ``partition`` is meant, whether it has files or not."""
        return self.whole or partition in self.partitions


@dataclass(frozen=True, slots=True)
class Control:
    """A control file: of each partition its entry, or why that cannot be trusted."""

    header: ControlHeader
    entries: Mapping[int, ControlEntry | str]

    def info(self, partition: int) -> PartitionInfo | None:
        """Return what is remembered of a partition, None if that cannot be told."""
        entry = self.entries.get(partition)
        return entry.info if isinstance(entry, ControlEntry) else None


@dataclass(frozen=True, slots=True)
class StartOutcome:
    """What a start of the storage would make of a partition's files.

    ``refused`` is why it would not serve the partition (then it changes nothing); otherwise
    ``next_id`` is where the log would go on, after ``changes``. If the control file remembers more
    transactions than that, ``lost_to`` is the last of them.
    """

    refused: str | None
    next_id: int | None
    changes: tuple[Change, ...] = ()
    lost_to: int | None = None

    @property
    def sound(self) -> bool:
        """Whether the partition would be served, with everything that is remembered of it."""
        return self.refused is None and self.lost_to is None


def locate(path: Path) -> Place:
    """Return what ``path`` names. Raises CannotInspect."""
    path = path.absolute()
    if path.suffix in (DATA_SUFFIX, INDEX_SUFFIX):
        if not path.exists():
            raise CannotInspect(f"there is no file {path}")
        if not path.stem.isdecimal() or not path.parent.name.isdecimal():
            raise CannotInspect(f"{path} is not named like a segment in a partition's directory")
        return Place(path.parent.parent, (int(path.parent.name),), int(path.stem))
    directory = path.parent if path.name == CONTROL_FILE else path
    if not directory.is_dir():
        raise CannotInspect(f"there is no storage directory or segment at {path}")
    if directory.name.isdecimal() and not (directory / CONTROL_FILE).exists():
        return Place(directory.parent, (int(directory.name),))
    found = tuple(sorted(int(each.name) for each in directory.iterdir() if each.name.isdecimal()))
    if not found and not any((directory / name).exists() for name in (CONTROL_FILE, DATA_MARK)):
        raise CannotInspect(f"{directory} is not a storage directory: it has no {CONTROL_FILE}")
    return Place(directory, found, whole=True)


def check_stopped(root: Path) -> None:
    """Raise CannotInspect if a storage uses the directory: its files change all the time."""
    for path in (root / CONTROL_FILE, root / DATA_MARK):
        if not path.exists():
            continue
        descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
        try:
            fcntl.lockf(descriptor, fcntl.LOCK_SH | fcntl.LOCK_NB)
        except OSError:
            raise CannotInspect(
                f"a storage is running on {root} ({path.name} is locked); stop it first, or "
                "inspect a copy"
            ) from None
        finally:
            os.close(descriptor)


def read_control(root: Path, meta: Path | None = None) -> Control:
    """Return what the control file of a storage's directory says.

    ``meta`` is where the file is, if that is another directory. Raises CannotInspect.
    """
    path = (meta or root) / CONTROL_FILE
    mark = root / DATA_MARK
    if meta is None and mark.exists() and not path.exists():
        raise CannotInspect(
            f"the control file of {root} is in a directory of its own (storage.metaDirectory): "
            "name that with --meta"
        )
    try:
        if meta is not None and mark.read_bytes() != (meta / META_MARK).read_bytes():
            raise CannotInspect(
                f"{root} and {meta} are not of the same storage: their marks differ"
            )
    except OSError as problem:
        raise CannotInspect(
            f"{root} and {meta} do not belong together: cannot read {problem.filename}: "
            f"{problem.strerror}"
        ) from problem
    try:
        raw = path.read_bytes()
    except OSError as problem:
        raise CannotInspect(f"cannot read {path}: {problem.strerror}") from problem
    if len(raw) < HEADER_BYTES:
        raise CannotInspect(f"{path} is cut off: it ends inside its {HEADER_BYTES} byte header")
    header = ControlHeader.decode(raw)
    entries: dict[int, ControlEntry | str] = {}
    for partition in range(header.num_partitions):
        start = entry_offset(partition)
        try:
            entries[partition] = decode_entry(raw[start : start + ENTRY_BYTES])
        except EntryCorrupted as problem:
            entries[partition] = str(problem)
    return Control(header, entries)


def segments(root: Path, partition: int) -> list[int]:
    """Return the first ids of a partition's segments, by their names."""
    names = (root / str(partition)).glob(f"*{DATA_SUFFIX}")
    return sorted(int(path.stem) for path in names if path.stem.isdecimal())


def segment_path(root: Path, partition: int, first_id: int) -> Path:
    """Return where the data file of a segment is."""
    return root / str(partition) / f"{segment_name(first_id)}{DATA_SUFFIX}"


def read_header(root: Path, partition: int, first_id: int) -> FileHeader:
    """Return the header of a segment's data file. Raises CannotInspect."""
    path = segment_path(root, partition, first_id)
    try:
        with ReadOnlyFile(path) as file:
            return FileHeader.decode(file.read(0, HEADER_BYTES))
    except (OSError, Damage) as problem:
        raise CannotInspect(f"cannot read {path}: {problem}") from problem


def check(root: Path, partition: int, first_id: int) -> SegmentReport:
    """Look at every record of a segment. Raises CannotInspect if its data cannot be read."""
    path = segment_path(root, partition, first_id)
    try:
        with ExitStack() as stack:
            data = stack.enter_context(ReadOnlyFile(path))
            index_path = path.with_suffix(INDEX_SUFFIX)
            try:
                index = stack.enter_context(ReadOnlyFile(index_path))
            except FileNotFoundError:
                report = check_segment(Windowed(data), None, first_id)
                missing = Flaw(first_id, 0, f"there is no {index_path.name}")
                return replace(report, flaws=(missing, *report.flaws))
            return check_segment(Windowed(data), index, first_id)
    except OSError as problem:
        raise CannotInspect(f"cannot read {path}: {problem.strerror}") from problem


def try_start(root: Path, partition: int, control: Control) -> StartOutcome:
    """Return what a start would do to a partition's files, by doing it without writing."""
    info = control.info(partition)
    if info is None:
        return StartOutcome(f"its entry in {CONTROL_FILE}: {control.entries.get(partition)}", None)
    disk = DryDisk(root)
    identity = LogIdentity(control.header.key, partition, str(partition))
    try:
        log = open_log(disk, identity, LogOptions(lambda: 0), info.local_low_water_mark)
    except PartitionDamaged as damaged:
        return StartOutcome(f"{damaged.what} ({damaged.file} at offset {damaged.offset})", None)
    except DiskFailed as failure:
        return StartOutcome(f"the storage would not start at all: {failure}", None)
    known = info.local_low_water_mark
    lost_to = known if log.next_id <= known else None
    return StartOutcome(None, log.next_id, tuple(disk.changes()), lost_to)


def is_sound(reports: Iterable[SegmentReport]) -> bool:
    """Return whether no segment has a flaw, or something torn after its last record."""
    return not any(report.flaws or report.tail is Tail.TORN for report in reports)
