"""The storage engines with which the directories of the vectors are opened."""

from __future__ import annotations

import time

from tests.vectors.storage_files import Files
from waltz_storage.core.wal.region_files import CATALOGUE_FILE
from waltz_storage.core.wal.wal_file import WAL_FILE
from waltz_storage.shell.config import EngineKind
from waltz_storage.shell.wal_engine import WalEngine, WalOptions

ENGINES = tuple(EngineKind)
_WAL_BYTES = 1 << 20


def engine_of(kind: EngineKind) -> WalEngine | None:
    """Return the write-ahead log for a directory, None for the engine ``files``.

    Its checkpoints are made when it is full and at a clean stop.
    """
    return WalEngine(WalOptions(_WAL_BYTES, time.monotonic)) if kind is EngineKind.WAL else None


def without_files_of_log(files: Files) -> Files:
    """Return the files of a directory without the two that only the engine ``wal`` reads."""
    return {name: raw for name, raw in files.items() if name not in (WAL_FILE, CATALOGUE_FILE)}
