"""Find private terms in the repository: in identifiers, comments, messages and documents.

``words.toml`` lists the private terms. A single word is found in prose and inside identifiers, in
any case: ``usher`` is found in ``Copy.usher``, ``_next_usher`` and ``UsherGone``. A term of several
words is found only in prose.
"""

from __future__ import annotations

import re
import tomllib
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from fnmatch import fnmatch
from pathlib import Path

from tests.tidy.repository import Violation

_SUFFIXES = (".py", ".md", ".txt", ".yaml", ".yml", ".tpl", ".toml", ".sh")
_WORD = re.compile(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+")


@dataclass(frozen=True, slots=True)
class Term:
    """A private word or phrase, the words to use instead, and the files that may use the term.

    ``allowed`` has patterns of file names.
    """

    private: str
    instead: str
    allowed: tuple[str, ...]

    def permits(self, path: str) -> bool:
        """Whether the file at ``path`` may use the term."""
        return any(fnmatch(path, pattern) for pattern in self.allowed)


class Vocabulary:
    """The terms that the repository must not use."""

    def __init__(self, terms: Iterable[Term], skipped: Iterable[str] = ()) -> None:
        terms = tuple(terms)
        self._words = {term.private: term for term in terms if " " not in term.private}
        self._phrases = [
            (re.compile(rf"\b{re.escape(term.private)}\b", re.IGNORECASE), term)
            for term in terms
            if " " in term.private
        ]
        self._skipped = tuple(skipped)

    @classmethod
    def load(cls, path: Path) -> Vocabulary:
        """Read the list of terms from a file. Raises tomllib.TOMLDecodeError and KeyError."""
        content = tomllib.loads(path.read_text())
        terms = [
            Term(entry["private"].lower(), entry["instead"], tuple(entry.get("allowed", ())))
            for entry in content["term"]
        ]
        return cls(terms, content["skipped"])

    def check(self, root: Path, files: Iterable[str]) -> Iterator[Violation]:
        """Yield every use of a private term in ``files``, and in their names."""
        for name in files:
            if name.endswith(_SUFFIXES) or "/" not in name:
                if any(fnmatch(name, pattern) for pattern in self._skipped):
                    continue
                yield from self.check_text(name, name)
                yield from self.check_text(name, (root / name).read_text(errors="replace"))

    def check_text(self, name: str, text: str) -> Iterator[Violation]:
        """Yield the private terms in ``text``, which belongs to the file ``name``."""
        for number, line in enumerate(text.splitlines(), 1):
            used = {word.lower() for word in _WORD.findall(line)}
            found = [self._words[word] for word in sorted(used & self._words.keys())]
            found += [term for pattern, term in self._phrases if pattern.search(line)]
            for term in found:
                if not term.permits(name):
                    yield Violation(name, number, f"'{term.private}': say {term.instead}")
