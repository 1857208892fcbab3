"""Find the changes that a start of a stopped storage would make. Reads files, writes none.

The code of the storage itself opens each log, but on a `DryDisk`, which keeps all changes in
memory.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from waltz_storage.core.control.control_format import CONTROL_FILE
from waltz_storage.core.errors import DiskFailed, PartitionDamaged, PartitionUnopened
from waltz_storage.core.log.log_opening import open_log
from waltz_storage.core.log.log_segments import LogOptions
from waltz_storage.core.log.segment_files import LogIdentity
from waltz_storage.core.scrub.findings import Ranges, ranges_of
from waltz_storage.inspect.completeness import NeedsLog
from waltz_storage.inspect.control_reading import ControlContent, read_control
from waltz_storage.inspect.dry_disk import Change, DryDisk
from waltz_storage.inspect.places import CannotInspect, Place


@dataclass(frozen=True, slots=True)
class StartOutcome:
    """The changes that a start of the storage would make to a partition's files.

    ``refused`` is the reason if the storage would refuse the partition, otherwise None. If it would
    serve the partition, the next record gets the id ``next_id``, and the records ``damaged`` are
    not served. ``next_id`` is None for a refused partition. The files of a refused partition get
    only two kinds of ``changes``: the remains of an interrupted creation of a segment are removed,
    and if the directory was replaced by an older copy of itself, invalid bytes at the end of the
    log are cut (see `log_opening`).

    If ``needs_log``, a start with the engine ``wal`` would first replay the write-ahead log, which
    the rehearsal does not do. Then ``refused`` says that the segments are not complete.
    """

    refused: str | None
    next_id: int | None
    changes: tuple[Change, ...] = ()
    damaged: Ranges = ()
    needs_log: bool = False

    @property
    def sound(self) -> bool:
        """Whether the partition would be served."""
        return self.refused is None

    @property
    def service(self) -> str:
        """What the storage would do with the partition; the text follows the word "would"."""
        if self.needs_log:
            return f"need the write-ahead log: {self.refused}"
        if self.refused is not None:
            return f"refuse the partition: {self.refused}"
        without_damaged = ""
        if self.damaged:
            without_damaged = f" without the damaged records {', '.join(map(str, self.damaged))}"
        return f"serve it{without_damaged}; the next id is {self.next_id}"


def try_start(root: Path, partition: int, control: ControlContent) -> StartOutcome:
    """Open an assigned partition's log without writing; return the outcome of a start."""
    info = control.info(partition)
    if info is None:
        return StartOutcome(f"its entry in {CONTROL_FILE}: {control.entries.get(partition)}", None)
    disk = DryDisk(root)
    identity = LogIdentity(control.header.key, partition, str(partition))
    # The time is needed only for the headers of new files, which are dropped with the DryDisk.
    options = LogOptions(now_ms=lambda: 0)
    try:
        log = open_log(disk, identity, options, control.known_log(partition))
    except PartitionDamaged as damage:
        refused = f"{damage.what} ({damage.file} at offset {damage.offset})"
    except PartitionUnopened as unopened:
        refused = f"it cannot be opened: {unopened.why} ({unopened.file})"
    except DiskFailed as failure:
        refused = f"the storage would not start at all: {failure}"
    else:
        damaged = ranges_of(log.damaged_at_opening)
        return StartOutcome(None, log.next_id, changes=tuple(disk.changes()), damaged=damaged)
    return StartOutcome(refused, next_id=None, changes=tuple(disk.changes()))


def try_starts(place: Place, meta: Path | None) -> dict[int, StartOutcome]:
    """Return the outcome of a start for each assigned partition that ``place`` includes.

    Without a readable control file, it is not known which partitions are assigned. Then each
    partition of ``place`` that has files is refused.
    """
    try:
        control = read_control(place.root, meta)
    except CannotInspect as problem:
        needs_log = isinstance(problem, NeedsLog)
        outcome = StartOutcome(str(problem), next_id=None, needs_log=needs_log)
        return dict.fromkeys(place.partitions, outcome)
    # A damaged entry (a text) may be that of an assigned partition, so it is included.
    return {
        partition: try_start(place.root, partition, control)
        for partition, entry in control.entries.items()
        if place.covers(partition) and (isinstance(entry, str) or entry.info.assigned)
    }
