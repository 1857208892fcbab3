"""What ``waltz local up`` prints while a cluster starts, and what it does if it is interrupted."""

from __future__ import annotations

import errno
import io
import sys

import pytest

from waltz.cli.local import commands


@pytest.mark.parametrize(
    "error", [BrokenPipeError(errno.EPIPE, "Broken pipe"), OSError(errno.EIO, "I/O error")]
)
def test_progress_that_cannot_be_printed_is_left_out(
    monkeypatch: pytest.MonkeyPatch, error: OSError
) -> None:
    class Closed(io.StringIO):
        def flush(self) -> None:
            raise error

    say = commands._progress_printer()
    with monkeypatch.context() as patch:
        patch.setattr(sys, "stderr", Closed())
        say("not printed")
    printed = io.StringIO()
    monkeypatch.setattr(sys, "stderr", printed)
    say("printed")
    assert printed.getvalue().endswith("s  printed\n")
    assert printed.getvalue().count("\n") == 1
