"""List the files that the style checks read, and define a violation. Runs git."""

from __future__ import annotations

import subprocess
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).parents[2]

PRODUCT = ("waltz/", "services/", "operator/")
"""The folders of the product, which users install."""


@dataclass(frozen=True, slots=True)
class Violation:
    """One place that breaks a rule; ``line`` counts from 1."""

    path: str
    line: int
    text: str

    def __str__(self) -> str:
        return f"{self.path}:{self.line}: {self.text}"


def source_files(root: Path) -> list[str]:
    """Return the paths below ``root`` of all files that git does not ignore."""
    # Untracked files are included: `make lint` must check a new file before its first `git add`.
    command = ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"]
    listed = subprocess.run(command, cwd=root, check=True, capture_output=True, text=True)
    return [name for name in listed.stdout.split("\0") if name and (root / name).is_file()]
