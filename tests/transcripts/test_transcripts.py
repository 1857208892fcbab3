"""Runs the transcripts of tests/transcripts and of its folder ``clients``.

`REWRITE=1` writes the present output into the files.
"""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from tests.transcripts.client_stage import ClientStage
from tests.transcripts.playing import Playing, played
from tests.transcripts.stage import Stage

_FOLDER = Path(__file__).parent
_STAGES: dict[str, type[Playing]] = {"transcripts": Stage, "clients": ClientStage}
_FILES = sorted(_FOLDER.rglob("*.txt"))


def test_every_stage_has_transcripts() -> None:
    assert {file.parent.name for file in _FILES} == _STAGES.keys()


@pytest.mark.parametrize("file", _FILES, ids=lambda file: file.stem)
def test_transcript_shows_what_the_code_does(file: Path) -> None:
    text = file.read_text()
    assert text.startswith("#"), "a transcript tells first what it shows"
    shown = played(text, _STAGES[file.parent.name]())
    if os.environ.get("REWRITE"):
        file.write_text(shown)
    else:
        assert text.splitlines() == shown.splitlines()


def test_transcript_with_wrong_output_fails() -> None:
    text = "# A new partition.\n\nassign a b c\nconnect a\n----\nnothing happens\n"
    assert "session 0 waits" in played(text, Stage())
