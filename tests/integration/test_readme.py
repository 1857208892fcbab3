"""What the README has a reader type, typed: its commands, and its Python on that cluster."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import sysconfig
from collections.abc import Iterator
from pathlib import Path

import pytest

import waltz

README = (Path(__file__).parents[2] / "README.md").read_text()
DOWN = "waltz local down"


def blocks(language: str) -> list[str]:
    """Return the README's blocks of code in ``language``."""
    return re.findall(rf"^```{language}\n(.*?)^```$", README, re.DOTALL | re.MULTILINE)


def commands() -> list[str]:
    """Return what the README types after the prompt, but for what makes the environment."""
    lines = [line for block in blocks("console") for line in block.splitlines()]
    typed = [line.removeprefix("$ ") for line in lines if line.startswith("$ ")]
    return [line for line in typed if not line.startswith("make ")]


def run(command: str | list[str], directory: Path) -> str:
    scripts = sysconfig.get_path("scripts")
    environment = os.environ | {"PATH": f"{scripts}{os.pathsep}{os.environ['PATH']}"}
    result = subprocess.run(
        command,
        shell=isinstance(command, str),
        cwd=directory,
        env=environment,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert result.returncode == 0, f"{command}: {result.stderr}"
    return result.stdout


@pytest.fixture
def place(tmp_path: Path) -> Iterator[Path]:
    """A directory in which no cluster is left running."""
    yield tmp_path
    if (tmp_path / "waltz-local" / "cluster.json").exists():
        run(DOWN, tmp_path)


def test_what_the_readme_says_works(place: Path) -> None:
    typed = commands()
    assert typed[-1] == DOWN
    assert [line.split()[2] for line in typed] == ["up", "append", "read", "kill", "start", "down"]
    said = {line: run(line, place) for line in typed[:-1]}
    (read,) = (text for line, text in said.items() if line.startswith("waltz log read"))
    (example,) = (code for code in blocks("python") if "asyncio" in code)
    assert read.endswith("hello\n")
    assert run([sys.executable, "-c", example], place) == "1\n"
    assert "guest 1" in run("waltz log read 0 1", place)
    run(DOWN, place)


def test_the_example_of_the_package_is_a_program() -> None:
    """Its lines are those of the README's, which is run, but for where the cluster is."""
    (example,) = (code for code in blocks("python") if "asyncio" in code)
    text = waltz.__doc__
    assert text is not None
    shown = [line.strip() for line in text.splitlines()]
    for line in example.splitlines():
        if not any(word in line for word in ("pathlib", "connect(")):
            assert line.strip() in shown
