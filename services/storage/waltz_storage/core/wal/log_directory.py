"""Pure. Tie the directory of the write-ahead log to its storage directory.

The log may have a directory of its own, on another volume (`storage.wal.directory`). The logs of
all storages of a cluster have the same cluster key. If a storage replayed the log of another one,
it would change the wrong files. So both directories have a *pair file* with the same UUID, and a
storage directory that needs its log is used only with the directory that has its UUID.

A *plain* storage directory has complete segment files and needs nothing of its log. So a plain
directory may be paired with another directory for the log. But that must not be the directory of
another storage, which may need its log.

A new UUID is written to the storage directory first, durably, and then to the directory of the log.
After a crash in between, the directory of the log has no UUID, so it belongs to no storage, and the
next start makes the pair anew. In the other order, a crash would leave a directory of the log with
a UUID that no storage directory has, and no storage could use that directory.

A volume that was restored from an older copy has the right UUID. `wal_replay` notices the older
copy by the positions in the log and in the catalogue, which is in the storage directory. Files are
used only through the `Disk` objects that the caller passes.
"""

from __future__ import annotations

import uuid

from waltz_storage.core.disk import Disk, DiskFile
from waltz_storage.core.errors import DirectoryRefused
from waltz_storage.core.wal.wal_file import WAL_FILE

LOG_PAIR_FILE = "waltz-storage.walpair"
_ID_BYTES = 36
"""The length of a UUID as text, which is all that a pair file has."""

_REMEDY = (
    "This storage does not start. Mount the volume of its log; if the volume is lost, empty the "
    "storage directory, and recover its partitions from other replicas: waltz storage recover"
)


def untie_log_directory(data: Disk, *, logged: bool) -> None:
    """Untie the storage directory ``data`` from a separate directory of its log.

    Call this if the log is in ``data`` from now on. ``logged`` says whether the storage directory
    needs its log. If not, its pair file is removed durably: a log in another directory is empty and
    not used any more. If the pair file stayed, the next start would refuse the directory, because
    the log that it then needs seems to be elsewhere. Raises DirectoryRefused if the log is needed
    and is in another directory. Raises OSError, DiskFailed.
    """
    if not data.exists(LOG_PAIR_FILE):
        return
    if logged:
        raise DirectoryRefused(
            "the storage directory needs its write-ahead log, which is in a directory of its own: "
            "set storage.wal.directory to that directory. To move the log, stop the storage "
            "cleanly first"
        )
    data.remove(LOG_PAIR_FILE)
    data.flush_directory("")


def lock_log_directory(data: Disk, home: Disk, *, logged: bool) -> DiskFile:
    """Lock the directory ``home`` of the log of ``data``; make the two a pair if necessary.

    ``logged`` says whether ``data`` needs its log. Return the locked file; closing it releases the
    directory. Raises DirectoryRefused, OSError, NoSpace, DiskFailed.
    """
    if logged and not data.exists(LOG_PAIR_FILE):
        raise DirectoryRefused(
            "the storage directory needs its write-ahead log, which is in the storage directory "
            "itself: remove storage.wal.directory. To move the log, stop the storage cleanly first"
        )
    lock = home.create(LOG_PAIR_FILE)
    try:
        if not lock.lock(_ID_BYTES):
            raise DirectoryRefused(
                "failed to acquire the lock: another process uses this storage.wal.directory"
            )
        _check_or_make_pair(data, home, lock, logged)
    except BaseException:
        lock.close()
        raise
    return lock


def _check_or_make_pair(data: Disk, home: Disk, lock: DiskFile, logged: bool) -> None:
    """Check that both pair files have the same UUID, or write a new one to both if that is allowed.

    Both files are durable when this returns. ``lock`` is the open pair file in ``home``. Raises
    DirectoryRefused.
    """
    file = data.create(LOG_PAIR_FILE)
    try:
        data_id, log_id = _read_id(file), _read_id(lock)
        # A storage directory that needs its log needs exactly the log with its own UUID.
        if logged and (log_id is None or log_id != data_id):
            raise DirectoryRefused(
                "storage.wal.directory is not the one that belongs to this storage.directory: "
                f"the files {LOG_PAIR_FILE} differ. {_REMEDY}"
            )
        # A plain one needs no log, but must not overwrite the log of another storage.
        if log_id is not None and log_id != data_id:
            raise DirectoryRefused(
                f"storage.wal.directory has the write-ahead log {WAL_FILE} of another storage: "
                "set another directory, or empty this one if no storage uses it any more"
            )
        # An existing UUID is written again: the process that wrote it may have ended before its
        # flush, or because its flush failed.
        pair_id = log_id or str(uuid.uuid4()).encode()
        for disk, pair_file in ((data, file), (home, lock)):
            pair_file.write_durably(0, pair_id)
            disk.flush_directory("")
    finally:
        file.close()


def _read_id(file: DiskFile) -> bytes | None:
    """Return the UUID in a pair file, None if there is none or its creation was interrupted."""
    raw = file.read(0, _ID_BYTES)
    try:
        uuid.UUID(raw.decode("ascii"))
    except ValueError:
        return None
    return raw
