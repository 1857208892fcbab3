"""What an import of the library loads: every program pays for it, and every process of Waltz.

The CPU time follows from the number of modules, which is the same on every machine: about 0.05 s
for the import and 0.25 s for the first use.
"""

from __future__ import annotations

import subprocess
import sys

PROGRAM = """
import sys

before = len(sys.modules)
import waltz

imported = len(sys.modules)
waltz.connect, waltz.Client
print(imported - before, len(sys.modules) - before)
"""


def output(program: str) -> str:
    """Return what ``program`` prints in a new process."""
    command = [sys.executable, "-c", program]
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout


def test_import_and_first_use_of_the_library_load_few_modules() -> None:
    imported, used = map(int, output(PROGRAM).split())
    assert 0 < imported <= 40
    assert 0 < used <= 300


def test_first_use_of_the_library_imports_no_library_that_only_some_programs_need() -> None:
    program = (
        "import sys, waltz; waltz.connect; "
        "print(*{'kazoo', 'pydantic', 'yaml', 'numpy', 'pyarrow', 'aiohttp'} & sys.modules.keys())"
    )
    assert output(program).split() == []
