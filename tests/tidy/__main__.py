"""Run ``python -m tests.tidy``: print each violation as ``file:line: text``.

The exit status is 1 if there is a violation.
"""

from __future__ import annotations

import sys
from pathlib import Path

from tests.tidy.headers import check_headers
from tests.tidy.patches import check_patches
from tests.tidy.repository import ROOT, source_files
from tests.tidy.sizes import check_sizes
from tests.tidy.words import Vocabulary


def main() -> int:
    """Run all checks; return the exit status."""
    files = source_files(ROOT)
    vocabulary = Vocabulary.load(Path(__file__).with_name("words.toml"))
    found = [
        *vocabulary.check(ROOT, files),
        *check_sizes(ROOT, files),
        *check_headers(ROOT, files),
        *check_patches(ROOT, files),
    ]
    for violation in found:
        print(violation)
    if found:
        print(f"{len(found)} violations of the style rules; CONTRIBUTING.md explains them")
    return 1 if found else 0


sys.exit(main())
