"""What an import of the library costs: every program pays it, and every process of Waltz."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

PROGRAM = """
import time

before = time.process_time()
import waltz

imported = time.process_time()
waltz.connect, waltz.Client
print(imported - before, time.process_time() - before)
"""

RUNS = 3
"""The best run counts: other processes make the CPU slower, and never faster."""


def cpu_seconds(bytecode: Path) -> tuple[float, float]:
    """Return the CPU time of ``import waltz``, and of that and its first use, in a new process.

    Compiled modules are kept in ``bytecode``, as those of an installed package are.
    """
    environment = os.environ | {"PYTHONPYCACHEPREFIX": str(bytecode)}
    environment.pop("PYTHONDONTWRITEBYTECODE", None)
    ended = subprocess.run(
        [sys.executable, "-c", PROGRAM], env=environment, capture_output=True, text=True, check=True
    )
    imported, used = map(float, ended.stdout.split())
    return imported, used


def test_import_and_first_use_of_the_library_take_little_cpu_time(tmp_path: Path) -> None:
    cpu_seconds(tmp_path)  # It compiles the modules.
    imports, uses = zip(*(cpu_seconds(tmp_path) for _ in range(RUNS)), strict=True)
    assert min(imports) < 0.15
    assert min(uses) < 0.4


def test_first_use_of_the_library_imports_no_library_that_only_some_programs_need() -> None:
    program = (
        "import sys, waltz; waltz.connect; "
        "print(*{'kazoo', 'pydantic', 'yaml', 'numpy', 'pyarrow', 'aiohttp'} & sys.modules.keys())"
    )
    ended = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True
    )
    assert ended.stdout.split() == []
