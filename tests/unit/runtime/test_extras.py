"""The import of a command without the garbage collector."""

from __future__ import annotations

import gc
import sys
from pathlib import Path

import pytest

from waltz.runtime.extras import import_quickly


@pytest.mark.parametrize("is_enabled", [True, False])
def test_module_is_imported_without_the_collector_which_is_as_before_afterwards(
    is_enabled: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.syspath_prepend(tmp_path)
    (tmp_path / "noting_module.py").write_text("import gc\nwas_enabled = gc.isenabled()\n")
    monkeypatch.delitem(sys.modules, "noting_module", raising=False)
    enabled_before = gc.isenabled()
    try:
        (gc.enable if is_enabled else gc.disable)()
        module = import_quickly("noting_module")
        assert (module.was_enabled, gc.isenabled()) == (False, is_enabled)
    finally:
        (gc.enable if enabled_before else gc.disable)()


def test_collector_is_on_again_after_an_import_that_fails(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.syspath_prepend(tmp_path)
    (tmp_path / "failing_module.py").write_text("raise ValueError('at import')\n")
    assert gc.isenabled()
    with pytest.raises(ValueError, match="at import"):
        import_quickly("failing_module")
    assert gc.isenabled()
