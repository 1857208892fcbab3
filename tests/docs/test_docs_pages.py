"""Test links, external resources, and names of commands and messages on all pages."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
import typer

from docs.reference import HERE
from docs.spec_pages import linked_files
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
_MENTION = re.compile(r"(?<!\[)`(?:examples/[^`\n]*|CHANGELOG\.md)`")
_VERB_IN_CODE = re.compile(r"\bwaltz ([a-z]+) ([a-z][a-z-]+)")


@pytest.mark.slow
def test_links_resolve_and_no_resource_is_external(site: Path) -> None:
    """A link that does not resolve fails the fixture, because the site is built with --strict."""
    made = sorted(site.rglob("*.html"))
    assert len(made) > len(PAGES)
    loaded = {str(page): _LOADED.findall(page.read_text()) for page in made}
    assert loaded == {page: [] for page in loaded}


@pytest.mark.slow
def test_linked_files_of_the_repository_are_pages_of_the_site(site: Path) -> None:
    assert 'href="examples/outbox.py.html"' in (site / "faq.html").read_text()
    assert "class" in (site / "examples/outbox.py.html").read_text()
    assert 'href="CHANGELOG.html"' in (site / "upgrading.html").read_text()
    assert (site / "CHANGELOG.html").exists()
    assert 'href="../spark.html#examples"' in (site / "examples/index.html").read_text()


def test_every_mention_of_an_example_or_the_changelog_is_a_link() -> None:
    mentions = [
        f"{page.name}: {mention}"
        for page in PAGES
        for mention in _MENTION.findall(page.read_text())
    ]
    assert mentions == []


def test_files_that_pages_link_to_exist() -> None:
    linked = linked_files()
    assert {"CHANGELOG.md", "examples/outbox.py"} <= linked
    assert [path for path in sorted(linked) if not (ROOT / path).is_file()] == []


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


@pytest.mark.parametrize("page", ["README.md", "docs/index.md", "docs/faq.md"])
def test_page_that_names_waltz_0_13_2_says_what_it_is_and_links_to_it(page: str) -> None:
    text = (ROOT / page).read_text()
    [sentence] = [each for each in text.split("\n") if "https://github.com/wepay/waltz)" in each]
    assert "distributed write-ahead log" in sentence
    for word in ("Java", "WePay", "Apache licence"):
        assert word in sentence


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


def test_first_screen_of_readme_has_what_why_picture_two_commands_and_a_number() -> None:
    """The lines above the second heading fit one screen."""
    screen = (ROOT / "README.md").read_text().partition("\n## ")[0]
    assert screen.count("\n") <= 40
    what, why = screen.index("**A write-ahead log"), screen.index("Use it when")
    picture, commands = screen.index("─▶ storages"), screen.index("pip install 'waltz-log[local]'")
    number = screen.index("appends a second")
    assert what < why < picture < commands < number
    block = screen[commands:].partition("```")[0]
    assert [line.split()[0] for line in block.splitlines()] == ["pip", "waltz"]
    assert re.search(r"\*\*[\d,]+ appends a second", screen) is not None
