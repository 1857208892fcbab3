"""Find out whether segments are complete without a write-ahead log. Reads files, writes none.

While a storage with ``storage.engine: wal`` runs, and after a crash, the last records are only in
its write-ahead log. A reader of the segments alone would report fewer records than the storage has,
or zeros in their place, without noticing it.
"""

from __future__ import annotations

import uuid
from contextlib import suppress
from pathlib import Path

from waltz_storage.core.control.control_format import ControlHeader, is_key_or_inverse
from waltz_storage.core.control.directory_pair import DATA_PAIR_FILE
from waltz_storage.core.log.segment_format import DATA_SUFFIX, HEADER_BYTES, Damage, FileHeader
from waltz_storage.core.wal.log_directory import LOG_PAIR_FILE
from waltz_storage.core.wal.region_files import CATALOGUE_FILE
from waltz_storage.core.wal.wal_file import WAL_FILE
from waltz_storage.inspect.dry_disk import ReadOnlyFile
from waltz_storage.inspect.places import CannotInspect
from waltz_storage.inspect.wal_reading import is_wal_empty, read_wal_key


class NeedsLog(CannotInspect):
    """The segments of a directory are complete only with its write-ahead log."""


def check_unmarked_complete(root: Path) -> None:
    """Raise CannotInspect if the segments in ``root``, without their control file, may need a log.

    They need the log in ``root`` if that is not empty: this raises NeedsLog. If the control file is
    in a meta directory, and a log of its own directory or a lost one belonged to the segments, only
    the control file shows whether they need it. In all other cases nothing is known, and nothing is
    raised. Raises OSError.
    """
    has_log = (root / WAL_FILE).exists()
    if has_log and not is_wal_empty(root):
        raise NeedsLog(_incomplete(root))
    # Beside the pair file of a log in another directory, a log in ``root`` is an old, unused one.
    log_is_elsewhere = (root / LOG_PAIR_FILE).exists() or (
        (root / CATALOGUE_FILE).exists() and not has_log
    )
    if log_is_elsewhere and (root / DATA_PAIR_FILE).exists():
        raise CannotInspect(
            f"the segments of {root} may need a write-ahead log, which only the control file "
            "shows; it is in a separate directory (storage.metaDirectory): name that with --meta"
        )


def check_marked_complete(root: Path, header: ControlHeader) -> None:
    """Raise NeedsLog if the control file with ``header`` marks ``root`` as needing its log.

    The mark is the key in the header: the cluster's key with inverted bytes. A crash may leave only
    some of the bytes inverted; such a key is a mark, too. A key alone does not show whether its
    bytes are inverted, so it is compared with the key in the log or in a segment. Nothing is raised
    if neither has a key. Raises OSError.
    """
    key = cluster_key(root)
    if key is not None and header.key != key and is_key_or_inverse(header.key, key):
        raise NeedsLog(_incomplete(root))


def cluster_key(root: Path, log: Path | None = None) -> uuid.UUID | None:
    """Return the key in the log or in a segment of ``root``, None if there is none.

    ``log`` is the directory of the log, None if that is ``root``. Raises OSError.
    """
    home = root if log is None else log
    if (home / WAL_FILE).exists():
        with suppress(CannotInspect):
            # A damaged log gives no key. The damage itself does not matter if the segments are
            # complete without the log.
            return read_wal_key(home)
    # The log may be in a directory that was not named. Each segment has the key, too.
    for path in sorted(root.glob(f"*/*{DATA_SUFFIX}")):
        try:
            with ReadOnlyFile(path) as file:
                key = FileHeader.decode(file.read(0, HEADER_BYTES)).key
        except Damage:
            continue
        # A key of zeros is none: the header of this file is only in the log so far.
        if key.int != 0:
            return key
    return None


def _incomplete(root: Path) -> str:
    """Return the text of the error that ``root`` needs its log."""
    return (
        f"the segments of {root} are complete only with their write-ahead log: waltz disk flatten "
        "writes the log to them; waltz disk wal shows the log"
    )
