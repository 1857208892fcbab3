"""Test that the programs on the pages pass the type checker, and that all Python parses."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.docs.console import blocks
from tests.docs.pages import PAGES, ROOT


def test_programs_are_type_checked(tmp_path: Path) -> None:
    programs = [
        (page, block)
        for page in PAGES.values()
        for block in blocks(page)
        if block.language == "python" and block.title is not None
    ]
    assert len(programs) > 5
    imported = tmp_path / "imported"
    imported.mkdir()
    for page, program in programs:
        assert program.title is not None
        written = tmp_path / f"{page.stem}_{program.title}"
        assert not written.exists(), f"{page.name} has two files {program.title}"
        written.write_text(program.text)
        # A program may import another one of its page, under the name that it has there.
        module = program.title.removesuffix(".py")
        if any(f"from {module} import" in other.text for at, other in programs if at == page):
            (imported / program.title).write_text(program.text)
    checked = subprocess.run(
        [sys.executable, "-m", "mypy", "--strict", *sorted(map(str, tmp_path.glob("*.py")))],
        cwd=ROOT,
        env={**os.environ, "MYPYPATH": str(imported)},
        capture_output=True,
        text=True,
        timeout=110,
        check=False,
    )
    assert checked.returncode == 0, checked.stdout + checked.stderr


@pytest.mark.parametrize("name", PAGES)
def test_python_blocks_compile(name: str) -> None:
    for block in blocks(PAGES[name]):
        if block.language == "python":
            compile(block.text, f"{name}: {block.title}", "exec")
