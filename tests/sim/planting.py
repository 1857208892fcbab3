"""Bugs that can be planted into a copy of the product: pieces of its text and replacements.

A piece is searched in a whole package, at any depth of indentation, so that code may move between
modules and blocks without a change of the bugs.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from pathlib import Path
from textwrap import indent

_DEEPEST_INDENTATION = 24


class Package(Enum):
    """Where a bug is planted: a folder below the root of the repository."""

    SERVER = "services/server/waltz_server"
    STORAGE = "services/storage/waltz_storage"
    CLIENT = "waltz/client"


@dataclass(frozen=True, slots=True)
class Planted:
    """A bug: ``old``, which occurs once in ``package``, is replaced by ``new``.

    Text that ends with a line break stands for whole lines, any other for a part of a line.
    ``breaks`` is the failure that it causes.
    """

    name: str
    package: Package
    old: str
    new: str
    breaks: str

    def place(self, root: Path) -> tuple[Path, str]:
        """Return the file below ``root`` that gets the bug, and its new text.

        Raises ValueError if the bug's text does not occur exactly once any more.
        """
        changed = []
        for path in sorted((root / self.package.value).rglob("*.py")):
            source = path.read_text()
            changed += [(path, text) for text in self._changed(source)]
        if len(changed) != 1:
            raise ValueError(
                f"planted bug '{self.name}' must be found once in {self.package.value}, but is "
                f"found {len(changed)} times: adapt it in tests/sim to the present code:\n"
                f"{self.old}"
            )
        return changed[0]

    def plant(self, root: Path) -> None:
        """Plant it into the copy of the product in ``root``; raises ValueError as `place` does."""
        path, text = self.place(root)
        path.write_text(text)

    def _changed(self, source: str) -> list[str]:
        """Return ``source`` with the bug, once for each place where it fits."""
        if not self.old.endswith("\n"):
            return _replaced(source, self.old, self.new)
        changed = []
        for depth in range(0, _DEEPEST_INDENTATION + 1, 4):
            old, new = (indent(text, " " * depth) for text in (self.old, self.new))
            changed += _replaced(source, f"\n{old}", f"\n{new}")
        return changed


def _replaced(source: str, old: str, new: str) -> list[str]:
    return [source.replace(old, new)] * source.count(old)
