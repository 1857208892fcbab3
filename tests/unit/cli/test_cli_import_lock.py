"""Only one import or export of the same files runs at a time."""

from __future__ import annotations

from pathlib import Path

import pytest

from waltz.cli.log.exclusive import exclusive
from waltz.cli.running import Failed


def test_import_lock_held_by_another_import_is_reported(tmp_path: Path) -> None:
    with (
        exclusive(tmp_path),
        pytest.raises(Failed, match=r"another export or import of .* is running"),
        exclusive(tmp_path),
    ):
        raise AssertionError("two imports have the lock")
    with exclusive(tmp_path):
        pass


def test_import_that_raises_blocking_error_is_not_reported_as_another_import(
    tmp_path: Path,
) -> None:
    with pytest.raises(BlockingIOError, match="stdout"), exclusive(tmp_path):
        raise BlockingIOError("stdout")
