"""Find the object that a path names: a storage, a partition, or a segment. Reads directories."""

from __future__ import annotations

import errno
import fcntl
import os
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from waltz_storage.core.control.control_format import CONTROL_FILE
from waltz_storage.core.control.directory_pair import DATA_PAIR_FILE
from waltz_storage.core.log.segment_format import DATA_SUFFIX, INDEX_SUFFIX, segment_name
from waltz_storage.core.wal.log_directory import LOG_PAIR_FILE
from waltz_storage.core.wal.wal_file import WAL_FILE

_LOCKED = (errno.EACCES, errno.EAGAIN)
"""The errors that say that another process holds the lock."""


class CannotInspect(Exception):
    """The files at a path cannot be inspected; the text says why."""


@dataclass(frozen=True, slots=True)
class Place:
    """The object that a path names: a storage's directory, a partition in it, or a segment.

    ``partitions`` are the partitions that the path includes and that have files. ``first_id`` is
    the first id of the segment, None if the path names no segment.
    """

    root: Path
    partitions: tuple[int, ...]
    first_id: int | None = None
    whole: bool = False
    """Whether the path names the whole storage."""

    def covers(self, partition: int) -> bool:
        """Return whether the path includes ``partition``, which may have no files."""
        return self.whole or partition in self.partitions


def locate(path: Path) -> Place:
    """Return the object that ``path`` names. Raises CannotInspect."""
    path = path.absolute()
    if path.suffix in (DATA_SUFFIX, INDEX_SUFFIX):
        if not path.exists():
            raise CannotInspect(f"there is no file {path}")
        if not path.stem.isdecimal() or not path.parent.name.isdecimal():
            raise CannotInspect(f"{path} is not named like a segment in a partition's directory")
        return Place(path.parent.parent, (int(path.parent.name),), first_id=int(path.stem))
    directory = path.parent if path.name == CONTROL_FILE else path
    if not directory.is_dir():
        raise CannotInspect(
            f"there is no storage directory or segment at {path}; name the directory of a storage "
            "(storage.directory), of a partition in it, or a .seg file"
        )
    # The directory of a partition has a number as its name. That of a storage may have such a name,
    # too, but it has a control file; or a pair file, if the control file is in a meta directory.
    is_storage = any((directory / name).exists() for name in (CONTROL_FILE, DATA_PAIR_FILE))
    if directory.name.isdecimal() and not is_storage:
        return Place(directory.parent, (int(directory.name),))
    partitions = tuple(
        sorted(int(entry.name) for entry in directory.iterdir() if entry.name.isdecimal())
    )
    if not partitions and not is_storage and not (directory / WAL_FILE).exists():
        raise CannotInspect(f"{directory} is not a storage directory: it has no {CONTROL_FILE}")
    return Place(directory, partitions, whole=True)


def check_stopped(root: Path) -> None:
    """Raise CannotInspect if a storage is running on ``root``, because it may change the files.

    A running storage holds a lock on the control file or on a pair file in ``root``. Raises
    CannotInspect, too, if locking fails for another reason, and OSError if such a file cannot be
    opened.
    """
    for path in (root / CONTROL_FILE, root / DATA_PAIR_FILE, root / LOG_PAIR_FILE):
        if not path.exists():
            continue
        descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
        try:
            fcntl.lockf(descriptor, fcntl.LOCK_SH | fcntl.LOCK_NB)
        except OSError as error:
            if error.errno not in _LOCKED:
                raise CannotInspect(
                    f"cannot find out whether a storage is running on {root}: locking {path.name} "
                    f"failed: {error.strerror}; inspect a copy"
                ) from error
            raise CannotInspect(
                f"a storage is running on {root} ({path.name} is locked); stop it first, or "
                "inspect a copy"
            ) from None
        finally:
            os.close(descriptor)


def segments(root: Path, partition: int) -> list[int]:
    """Return the first ids of a partition's segments, taken from the file names."""
    names = (root / str(partition)).glob(f"*{DATA_SUFFIX}")
    return sorted(int(path.stem) for path in names if path.stem.isdecimal())


def segments_at(place: Place) -> Iterator[tuple[int, int]]:
    """Yield the partition and the first id of every segment that ``place`` includes."""
    for partition in place.partitions:
        if place.first_id is not None:
            yield partition, place.first_id
        else:
            yield from ((partition, first_id) for first_id in segments(place.root, partition))


def segment_path(root: Path, partition: int, first_id: int) -> Path:
    """Return the path of a segment's data file."""
    return root / str(partition) / f"{segment_name(first_id)}{DATA_SUFFIX}"
