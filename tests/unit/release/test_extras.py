"""Test that `import waltz` needs no library of an extra."""

from __future__ import annotations

import subprocess
import sys

_LIBRARIES_OF_EXTRAS = ("aiohttp", "kopf", "prometheus_client", "pyspark", "rich", "typer")


def run(program: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, timeout=60
    )


def test_import_of_client_loads_no_library_of_an_extra() -> None:
    modules = "waltz, waltz.client.settings, waltz.pytest_plugin, waltz.sync.callbacks"
    ended = run(f"import sys, {modules}; print(*sys.modules)")
    assert ended.returncode == 0, ended.stderr
    assert not set(_LIBRARIES_OF_EXTRAS) & set(ended.stdout.split())


def test_command_without_its_extra_names_the_extra_in_one_line() -> None:
    ended = run("import sys; sys.modules['typer'] = None; from waltz.cli import main; main()")
    assert ended.returncode == 1
    assert ended.stderr == "waltz: the command needs typer: pip install 'waltz-log[cli]'\n"
