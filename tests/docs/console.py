"""Parse pages: blocks of code, commands typed at a prompt, and their output.

A block of ``console`` is typed: each ``$`` begins a command, and its output follows. ``…`` stands
for anything, alone on a line for any lines. A command that ends with ``# status 1`` has that exit
status; one that ends with ``# on storage-0`` is typed on that machine. A block of another language
with a ``title`` is a file of that name. Any other block is only shown; a comment above it has the
reason: ``<!-- not typed: … -->``.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path

ANYTHING = "…"
CONSOLE = "console"

_FENCE = re.compile(
    r'^(?P<indent> *)```(?P<language>\w*)(?: title="(?P<title>[^"]+)")?\n'
    r"(?P<text>.*?)^(?P=indent)```$",
    re.DOTALL | re.MULTILINE,
)
_HEADING = re.compile(r"^#+ (.+)$", re.MULTILINE)
_REASON = re.compile(r"<!-- not typed: (.+) -->\n+ *$")
_ON = re.compile(r"^(?P<command>.*?)(?: +# (?:on (?P<machine>\S+)|status (?P<status>\d+)))?$")
_PROMPT = "$ "
_VARIES = (
    (re.compile(r"127\.0\.0\.1:\d+"), "127.0.0.1:PORT"),
    (re.compile(r"\b\d+\.\d+ s\b"), "N s"),
    (re.compile(r"\b[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}\b"), "KEY"),
    (re.compile(r"\bclient \d{2,}"), "client N"),
    (re.compile(r"─+"), ""),
)
"""Parts of the output that differ in every run, or are only drawn."""


@dataclass(frozen=True, slots=True)
class Block:
    """A block of code."""

    language: str
    title: str | None
    """The file that it is, None if it is none."""
    text: str
    not_typed: str | None
    """Why no test types or runs it, None if one does."""
    section: str
    """The heading above it, of whatever level."""


@dataclass(frozen=True, slots=True)
class Typed:
    """A command, and the lines that it is shown to print."""

    command: str
    shown: tuple[str, ...]
    machine: str | None = None
    """Where it is typed, None if that does not matter."""
    status: int = 0
    """The exit status that it ends with."""


def blocks(page: Path) -> list[Block]:
    """Return the page's blocks of code, in their order, without the indentation of a list."""
    text = page.read_text()
    return [_block(text, found) for found in _FENCE.finditer(text)]


def _block(page: str, found: re.Match[str]) -> Block:
    lines = found["text"].splitlines(keepends=True)
    text = "".join(line.removeprefix(found["indent"]) for line in lines)
    reason = _REASON.search(page[: found.start()])
    not_typed = None if reason is None else reason[1]
    *_, section = ("", *_HEADING.findall(page[: found.start()]))
    return Block(found["language"], found["title"], text, not_typed, section)


def typed(block: Block) -> list[Typed]:
    """Return the commands of a console block; a backslash at the end continues a line."""
    text = block.text.replace("\\\n", " ")
    commands: list[tuple[str, list[str]]] = []
    for line in text.splitlines():
        if line.startswith(_PROMPT):
            commands.append((line.removeprefix(_PROMPT), []))
        else:
            assert commands, f"printed before anything was typed: {line}"
            commands[-1][1].append(line)
    return [_typed(command, tuple(shown)) for command, shown in commands]


def _typed(line: str, shown: tuple[str, ...]) -> Typed:
    parts = _ON.match(line)
    assert parts is not None
    return Typed(parts["command"], shown, parts["machine"], int(parts["status"] or 0))


def prints(shown: Iterable[str], printed: str, names: Mapping[str, str]) -> bool:
    """Whether ``printed`` is what a page shows.

    ``names`` maps what the page calls something to what it is called here.
    """
    for name, here in names.items():
        printed = printed.replace(here, name)
    wanted = "".join(_pattern(line) for line in map(_plain, shown) if line)
    lines = [line for line in map(_plain, printed.splitlines()) if line]
    return re.fullmatch(wanted, "".join(f"{line}\n" for line in lines)) is not None


def _plain(line: str) -> str:
    """Return a line without what varies from run to run, and with single spaces."""
    for varies, name in _VARIES:
        line = varies.sub(name, line)
    return " ".join(line.split())


def _pattern(line: str) -> str:
    if line == ANYTHING:
        return r"(?:.*\n)*"
    return re.escape(line).replace(re.escape(ANYTHING), ".*") + r"\n"
