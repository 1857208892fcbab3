"""Read the control file of a stopped storage. Reads files, writes none."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
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
from waltz_storage.core.control.directory_pair import (
    DATA_PAIR_FILE,
    META_PAIR_FILE,
    PairContent,
    pair_problem,
)
from waltz_storage.core.control.flushed_marks_format import FLUSHED_FILE, current_end
from waltz_storage.core.log.flushed_end import KnownLog
from waltz_storage.core.partitions.known_log import known_log
from waltz_storage.inspect.completeness import check_marked_complete, check_unmarked_complete
from waltz_storage.inspect.dry_disk import ReadOnlyFile
from waltz_storage.inspect.places import CannotInspect

_MOST_PARTITIONS = 1 << 20
"""A header with more partitions is damaged: no command can create such a cluster."""


@dataclass(frozen=True, slots=True)
class ControlContent:
    """The content of a control file: for each partition its entry, or why the entry is damaged.

    ``marks`` is the content of the file of the flushed marks, empty if there is none.
    """

    header: ControlHeader
    entries: Mapping[int, ControlEntry | str]
    marks: bytes = b""

    def info(self, partition: int) -> PartitionInfo | None:
        """Return the persisted state of a partition, None if its entry is damaged or missing."""
        entry = self.entries.get(partition)
        return entry.info if isinstance(entry, ControlEntry) else None

    def known_log(self, partition: int) -> KnownLog:
        """Return what is known about the log of a partition, whose entry must not be damaged."""
        entry = self.entries[partition]
        assert isinstance(entry, ControlEntry)
        return known_log(entry.info, current_end(self.marks, partition, entry.checksum))


def read_control(root: Path, meta: Path | None = None) -> ControlContent:
    """Read the control file of the storage directory ``root``.

    ``meta`` is the directory of the control file, None if that is ``root``. Raises CannotInspect,
    OSError.
    """
    control_path = (meta or root) / CONTROL_FILE
    marks_path = control_path.with_name(FLUSHED_FILE)
    pair_file = root / DATA_PAIR_FILE
    if meta is None and pair_file.exists() and not control_path.exists():
        raise CannotInspect(
            f"the control file of {root} is in a separate directory (storage.metaDirectory): "
            "name it with --meta"
        )
    if meta is not None:
        _check_pair(root, meta)
    raw = _content(control_path)
    marks = _content(marks_path, may_be_missing=True)
    if len(raw) < HEADER_BYTES:
        raise CannotInspect(
            f"{control_path} is cut off: it ends inside its {HEADER_BYTES} byte header"
        )
    header = ControlHeader.decode(raw)
    if not 0 <= header.num_partitions <= _MOST_PARTITIONS:
        raise CannotInspect(
            f"the header of {control_path} is damaged: it says {header.num_partitions} partitions; "
            "use another copy"
        )
    check_marked_complete(root, header)
    entries: dict[int, ControlEntry | str] = {}
    for partition in range(header.num_partitions):
        start = entry_offset(partition)
        try:
            entries[partition] = decode_entry(raw[start : start + ENTRY_BYTES])
        except EntryCorrupted as corrupted:
            entries[partition] = str(corrupted)
    return ControlContent(header, entries, marks)


def check_complete(root: Path, meta: Path | None = None) -> None:
    """Raise CannotInspect if the segments in ``root`` need a write-ahead log, or may need one.

    ``meta`` is the directory of the control file, None if that is ``root`` or was not named. The
    key in a control file decides (see `check_marked_complete`). If ``root`` has no whole one, and
    ``meta`` is None, the other files in ``root`` decide (see `check_unmarked_complete`). Raises
    OSError.
    """
    if meta is not None:
        read_control(root, meta)
        return
    path = root / CONTROL_FILE
    if path.exists():
        # Only the header: damage after it says nothing about the log.
        with ReadOnlyFile(path) as file:
            raw = file.read(0, HEADER_BYTES)
        if len(raw) == HEADER_BYTES:
            check_marked_complete(root, ControlHeader.decode(raw))
            return
    check_unmarked_complete(root)


def _check_pair(root: Path, meta: Path) -> None:
    """Raise CannotInspect unless ``meta`` is the meta directory that belongs to ``root``."""
    try:
        data_content = PairContent.decode((root / DATA_PAIR_FILE).read_bytes())
        meta_content = PairContent.decode((meta / META_PAIR_FILE).read_bytes())
        problem = pair_problem(data_content, meta_content)
    except OSError as error:
        problem = f"cannot read {error.filename}: {error.strerror}"
    if problem is not None:
        raise CannotInspect(f"{root} and {meta} do not belong together: {problem}")


def _content(path: Path, *, may_be_missing: bool = False) -> bytes:
    """Return the content of a file; raises CannotInspect.

    The content of a missing file is empty if ``may_be_missing`` is set.
    """
    try:
        return b"" if may_be_missing and not path.exists() else path.read_bytes()
    except OSError as error:
        raise CannotInspect(f"cannot read {path}: {error.strerror}") from error
