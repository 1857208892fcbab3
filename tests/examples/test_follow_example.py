"""The example that follows a log, killed while it writes the mark; the log is a list."""

from __future__ import annotations

import runpy
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

import waltz.sync
from tests.support.state_lines import transaction

EXAMPLE = Path(__file__).parents[2] / "examples/03_follow.py"


class Killed(BaseException):
    """The end of the process."""


class Log:
    """A client at a log with one partition, which only this client appends to."""

    def __init__(self) -> None:
        self.length = 0

    def __enter__(self) -> Log:
        return self

    def __exit__(self, *_: object) -> None:
        pass

    def append(self, _: int, data: bytes) -> None:
        self.length += 1

    def high_water_mark(self, _: int) -> int:
        return self.length - 1

    def stream(
        self, _: int, *, after: int, until: int, data: bool
    ) -> Iterator[waltz.Transaction[bytes]]:
        return map(transaction, range(after + 1, until + 1))


def test_follow_example_killed_while_it_writes_the_mark_continues_at_the_mark_before(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    log = Log()
    monkeypatch.setattr(waltz.sync, "connect", lambda *_, **__: log)
    monkeypatch.setattr(sys, "argv", [EXAMPLE.name, "127.0.0.1:2181", str(tmp_path / "mark")])

    def run() -> list[str]:
        runpy.run_path(str(EXAMPLE), run_name="__main__")
        return capsys.readouterr().out.splitlines()

    def write_nothing(path: Path, text: str) -> None:
        path.open("w").close()
        raise Killed

    assert run() == ["0 0"]
    with monkeypatch.context() as patched:
        patched.setattr(Path, "write_text", write_nothing)
        with pytest.raises(Killed):
            run()
    assert capsys.readouterr().out == "1 1\n"
    assert run() == ["1 1", "2 2"]
