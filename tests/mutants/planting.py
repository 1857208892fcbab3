"""Define bugs to plant into the product: a piece of its text, a replacement, and tests.

A piece is searched in a whole package, at any depth of indentation, so that code may move between
modules and blocks without a change of the bugs.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from enum import Enum
from pathlib import Path
from textwrap import indent

ROOT = Path(__file__).parents[2]
SOURCE_ROOTS = ("services/server", "services/storage", "operator", ".")
"""The folders that contain the product's top packages; the last one contains all others."""

_DEEPEST_INDENTATION = 24


class Package(Enum):
    """Where a bug is planted: a folder below the root of the repository."""

    SERVER = "services/server/waltz_server"
    STORAGE = "services/storage/waltz_storage"
    OPERATOR = "operator/waltz_operator"
    CLIENT = "waltz/client"
    ADMIN = "waltz/admin"
    METADATA = "waltz/metadata"
    NET = "waltz/net"
    PROTOCOL = "waltz/protocol"
    RUNTIME = "waltz/runtime"
    SPARK = "waltz/spark"
    STATE = "waltz/state"
    SYNC = "waltz/sync"
    CLI = "waltz/cli"
    CONSOLE = "waltz/console"
    LOCAL = "waltz/local"
    TESTING = "waltz/testing"


_FEWEST_SEEDS = 40


@dataclass(frozen=True, slots=True)
class Seeds:
    """Simulated clusters, until a seed violates a guarantee.

    The seeds are ``known``, which has caught the bug before, and then the first ``count``.
    """

    count: int = 1000
    known: int | None = None

    def in_order(self) -> Iterator[int]:
        """Yield each seed once, the known one first."""
        if self.known is not None:
            yield self.known
        yield from (seed for seed in range(self.count) if seed != self.known)

    def known_to_catch(self, seed: int) -> Seeds:
        """Return the seeds for a bug that ``seed`` has caught, the first of those that were tried.

        After a change of the product that seed may find nothing, but a few more than before do.
        """
        return Seeds(min(self.count, max(_FEWEST_SEEDS, 4 * seed)), known=seed)


@dataclass(frozen=True, slots=True)
class OrderedRuns:
    """Simulated orders of an operator, until one of the first ``count`` seeds fails."""

    kind: str
    lost: bool = False
    count: int = 12


@dataclass(frozen=True, slots=True)
class Nodes:
    """Tests of which one must fail, named as pytest names them, relative to ``tests``."""

    names: tuple[str, ...]


CaughtBy = Seeds | OrderedRuns | Nodes
SEEDS = Seeds()


def nodes(*names: str) -> Nodes:
    """Return the tests of which one must fail."""
    return Nodes(names)


@dataclass(frozen=True, slots=True)
class Planted:
    """A bug: ``old``, which occurs once in ``package``, is replaced by ``new``.

    Text that ends with a line break stands for whole lines, any other for a part of a line.
    ``breaks`` is the failure that it causes, ``caught_by`` are the tests that must find it.
    """

    name: str
    package: Package
    old: str
    new: str
    breaks: str
    caught_by: CaughtBy = SEEDS

    def place(self, root: Path = ROOT) -> tuple[Path, str]:
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
                f"found {len(changed)} times: adapt it in tests/mutants to the present code:\n"
                f"{self.old}"
            )
        return changed[0]

    def _changed(self, source: str) -> list[str]:
        """Return ``source`` with the bug, once for each place where it fits."""
        if not self.old.endswith("\n"):
            return _replaced(source, self.old, self.new)
        changed = []
        for depth in range(0, _DEEPEST_INDENTATION + 1, 4):
            old, new = (indent(text, " " * depth) for text in (self.old, self.new))
            changed += _replaced(source, f"\n{old}", f"\n{new}")
        return changed


def module_name(path: Path, root: Path = ROOT) -> str:
    """Return the dotted name under which the product imports the file ``path``."""
    folder = next(root / name for name in SOURCE_ROOTS if path.is_relative_to(root / name))
    parts = path.relative_to(folder).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


def _replaced(source: str, old: str, new: str) -> list[str]:
    return [source.replace(old, new)] * source.count(old)
