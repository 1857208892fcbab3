"""Citations of the specification, such as ``spec/wire.md section 4``, name existing sections."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).parents[2]
SPEC = ROOT / "spec"
SOURCES = ("waltz", "services", "operator", "tests", "bench", "demo", "docs", "examples", "e2e")

_NAMED = re.compile(r"\b(?:\w+/)?(?:wire|disk|zookeeper|behaviour)\.md\b")
_GAP = r"[\s#]+"
"""What separates the words of a citation: it may continue on the next line of a comment."""
_CITED = re.compile(
    rf"(?P<page>(?:\w+/)?\w+\.md){_GAP}sections?{_GAP}"
    rf"(?P<first>\d+(?:\.\d+)?)(?P<more>(?:,?{_GAP}(?:(?:and|to){_GAP})?\d+(?:\.\d+)?)*)"
)
_FILE = re.compile(r"`([\w/-]+\.(?:json|txt|py))`")
_NUMBER = re.compile(r"\d+(?:\.\d+)?")
_HEADING = re.compile(r"^#+ (\d+(?:\.\d+)?)\.? ", re.MULTILINE)


def sections(page: Path) -> set[str]:
    return set(_HEADING.findall(page.read_text()))


def cited(text: str) -> Iterator[tuple[str, str]]:
    for match in _CITED.finditer(text):
        for number in _NUMBER.findall(match["first"] + match["more"]):
            yield match["page"], number


def python_files() -> Iterator[Path]:
    for folder in SOURCES:
        yield from sorted((ROOT / folder).rglob("*.py"))


def test_citations_in_sources_name_existing_sections() -> None:
    found = 0
    for file in python_files():
        for page, number in cited(file.read_text()):
            if page.startswith("spec/"):
                assert number in sections(ROOT / page), f"{file}: {page} section {number}"
                found += 1
    assert found > 80


def test_citations_in_sources_have_one_form() -> None:
    for file in python_files():
        text = file.read_text()
        if file == Path(__file__):
            continue
        complete = {match.start() for match in _CITED.finditer(text)}
        for named in _NAMED.finditer(text):
            line = text.count("\n", 0, named.start()) + 1
            assert named[0].startswith("spec/"), f"{file}:{line}: cite spec/{named[0]}"
            assert named.start() in complete, f"{file}:{line}: cite a section of {named[0]}"


def test_citations_between_pages_of_the_specification_name_existing_sections() -> None:
    found = 0
    for file in sorted(SPEC.rglob("*.md")):
        for page, number in cited(file.read_text()):
            assert number in sections(SPEC / page.removeprefix("spec/")), f"{file}: {page} {number}"
            found += 1
    assert found > 20


def test_section_numbers_of_a_page_are_unique_and_in_order() -> None:
    for name in ("wire", "disk", "zookeeper", "behaviour"):
        numbers = _HEADING.findall((SPEC / f"{name}.md").read_text())
        parts = [tuple(map(int, number.split("."))) for number in numbers]
        assert parts == sorted(set(parts)), name
        assert [p[0] for p in parts if len(p) == 1] == list(range(1, max(parts)[0] + 1)), name


def test_files_named_by_the_specification_exist() -> None:
    places = (ROOT, SPEC, SPEC / "vectors", ROOT / "tests" / "transcripts")
    found = 0
    for page in sorted(SPEC.rglob("*.md")):
        for name in _FILE.findall(page.read_text()):
            assert any((place / name).exists() for place in places), f"{page}: {name}"
            found += 1
    assert found > 30
