"""Test links, external resources, and names of commands and messages on all pages."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
import typer

from docs.reference import HERE
from waltz.cli.app import app

ROOT = HERE.parent
PAGES = sorted(HERE.glob("*.md"))

_LOADED = re.compile(r'<(?:script|link|img|iframe)\b[^>]*\b(?:src|href)="(?:https?:)?//([^"]*)"')
_CODE = re.compile(r"`([^`\n]+)`")
_NOT_A_MESSAGE = ("waltz ", "make ", "tests/", "GET ", "--", '"')
_VARYING = re.compile(r"\d+|…")
_JOINED = re.compile(r'"\s*\n\s*f?"')
_SHORTEST_MESSAGE = 9
_VERB = re.compile(r"(?:^\$ |`|&& )waltz ([a-z]+)(?: ([a-z][a-z-]*))?", re.MULTILINE)
_VERB_IN_CODE = re.compile(r"\bwaltz ([a-z]+) ([a-z][a-z-]+)")


@pytest.mark.slow
def test_links_resolve_and_no_resource_is_external(site: Path) -> None:
    """A link that does not resolve fails the fixture, because the site is built with --strict."""
    made = sorted(site.rglob("*.html"))
    assert len(made) > len(PAGES)
    loaded = {str(page): _LOADED.findall(page.read_text()) for page in made}
    assert loaded == {page: [] for page in loaded}


def test_commands_named_by_documentation_pages_exist() -> None:
    group: Any = typer.main.get_command(app)
    for page in (ROOT / "README.md", *PAGES):
        for noun, verb in _VERB.findall(page.read_text()):
            assert noun in group.commands, f"{page.name}: waltz {noun}"
            verbs = getattr(group.commands[noun], "commands", None)
            if verbs is not None and verb:
                assert verb in verbs, f"{page.name}: waltz {noun} {verb}"


def test_commands_named_by_code_exist() -> None:
    group: Any = typer.main.get_command(app)
    named = _VERB_IN_CODE.findall(_code("waltz", "services", "operator"))
    nouns = {
        noun: found.commands for noun, found in group.commands.items() if hasattr(found, "commands")
    }
    known = [(noun, verb) for noun, verb in named if noun in nouns]
    assert len(known) > 100
    assert [(noun, verb) for noun, verb in known if verb not in nouns[noun]] == []


def test_messages_on_faults_page_are_in_the_code() -> None:
    code = _code("waltz", "services")
    shown = _CODE.findall((HERE / "faults.md").read_text())
    messages = [text for text in shown if not text.startswith(_NOT_A_MESSAGE)]
    parts = {part.strip(" :,;") for text in messages for part in _VARYING.split(text)}
    long = {part for part in parts if len(part) >= _SHORTEST_MESSAGE}
    assert len(long) > 15
    assert {part for part in long if part not in code} == set()


def _code(*folders: str) -> str:
    """Return all code in these folders, with texts of several lines joined."""
    files = [file for folder in folders for file in sorted((ROOT / folder).rglob("*.py"))]
    return "".join(_JOINED.sub("", file.read_text()) for file in files)
