"""Test that every block on the pages is run, or has a reason why it is not run."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import typer
import yaml

from tests.docs.console import ANYTHING, CONSOLE, Block, blocks
from tests.docs.pages import ELSEWHERE, FROM_CODE, PAGES, ROOT, TYPED
from waltz.cli.app import app

OWN = sorted(PAGES.keys() - FROM_CODE - ELSEWHERE)
HERE = Path(__file__).parent

_CODE = re.compile(r"`(waltz [a-z][^`\n]+)`")
_VERB_ALONE = re.compile(r"waltz (?:cluster metadata|[a-z]+)(?: [a-z][a-z-]*)?")
_IN_A_CHECKOUT = re.compile(r"\bmake [a-z.]|\b(?:charts|examples)/|python -m (?:bench|examples)")
_TARGET = re.compile(r"`make ([a-z0-9-]+)[^`]*`|^\$ make ([a-z0-9-]+)", re.MULTILINE)


@pytest.mark.parametrize("name", OWN)
def test_every_block_is_run_or_used_as_a_file_or_says_why_not(name: str) -> None:
    for block in blocks(PAGES[name]):
        tried = block.title is not None or (block.language == CONSOLE and name in TYPED)
        assert tried != (block.not_typed is not None), (
            f"{name}, {block.section}: make it a console block that a test types, or a file by "
            f'title="...", or say why no test tries it: <!-- not typed: ... -->\n{block.text}'
        )


@pytest.mark.parametrize("name", OWN)
def test_every_file_is_used_by_a_command_below_it(name: str) -> None:
    above: list[Block] = []
    for block in blocks(PAGES[name]):
        if block.language == CONSOLE:
            above = [file for file in above if file.title and file.title not in block.text]
        elif block.title is not None:
            above.append(block)
    assert [file.title for file in above] == []


@pytest.mark.parametrize(("name", "test"), TYPED.items())
def test_module_that_types_a_page_contains_its_name(name: str, test: str) -> None:
    assert Path(name).name in (HERE / f"{test}.py").read_text()


def test_worker_of_the_tutorial_connects_as_the_client_of_the_kubernetes_page() -> None:
    """Only ``e2e`` runs either of them."""
    settings, client = _manifests("docs/kubernetes.md", "client.yaml")
    worker_settings, worker = _manifests("docs/tutorial.md", "worker.yaml")
    assert worker_settings == settings
    pod, worker_pod = client["spec"], worker["spec"]["template"]["spec"]
    assert worker_pod["securityContext"] == pod["securityContext"]
    [container], [worker_container] = pod["containers"], worker_pod["containers"]
    assert worker_container["env"] == container["env"]
    # The worker has a volume more: its programs.
    assert worker_container["volumeMounts"][:-1] == container["volumeMounts"]
    assert worker_pod["volumes"][:-1] == pod["volumes"]


def _manifests(name: str, title: str) -> list[Any]:
    """Return the objects in a file of a page."""
    [text] = [block.text for block in blocks(PAGES[name]) if block.title == title]
    return list(yaml.safe_load_all(text))


@pytest.mark.parametrize("name", PAGES)
def test_every_page_parses_into_blocks(name: str) -> None:
    fences = re.findall(r"^ *```", PAGES[name].read_text(), re.MULTILINE)
    assert len(fences) == 2 * len(blocks(PAGES[name]))


@pytest.mark.parametrize("name", PAGES)
def test_commands_in_prose_parse(name: str) -> None:
    for command in _commands(PAGES[name]):
        words = shlex.split(command, comments=True)[1:]
        verb: Any = typer.main.get_command(app)
        while words and words[0] in getattr(verb, "commands", ()):
            verb = verb.commands[words.pop(0)]
        with verb.make_context("waltz", words):
            pass


@pytest.mark.parametrize("name", PAGES)
def test_make_targets_in_pages_exist(name: str) -> None:
    makefile = (ROOT / "Makefile").read_text()
    for targets in _TARGET.findall(PAGES[name].read_text()):
        target = "".join(targets)
        assert f"\n{target}:" in makefile, target


@pytest.mark.parametrize("name", OWN + sorted(ELSEWHERE))
def test_page_whose_commands_need_the_repository_names_it_above_the_first(name: str) -> None:
    text = PAGES[name].read_text()
    shells = (b for b in blocks(PAGES[name]) if b.language in {CONSOLE, "sh"})
    first = next((block.text for block in shells if _IN_A_CHECKOUT.search(block.text)), None)
    if first is not None:
        above = text.partition(first)[0]
        assert "checkout" in above, f"{name}: say that this needs a checkout:\n{first}"


def _commands(page: Path) -> Iterator[str]:
    """Yield the commands in a page's text that are there in full, with arguments or options."""
    for command in _CODE.findall(page.read_text()):
        whole = command.replace("\\", "").partition("|")[0]
        if ANYTHING not in whole and not _VERB_ALONE.fullmatch(whole):
            yield whole
