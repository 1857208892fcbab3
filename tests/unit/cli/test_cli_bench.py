"""``waltz bench`` appends only after it has named the log, the partitions, and asked."""

from __future__ import annotations

import pytest
from typer.testing import CliRunner

from waltz.cli.app import app

WRITING = ("producers", "consumers", "validate", "produce")
WHERE = ("-z", "127.0.0.1:1", "-r", "/waltz/orders")


@pytest.mark.parametrize("verb", [*WRITING, "consume"])
def test_partitions_must_be_named(verb: str) -> None:
    result = CliRunner().invoke(app, ["bench", verb, *WHERE])
    assert result.exit_code == 2
    assert "--partitions" in result.stderr


@pytest.mark.parametrize("verb", WRITING)
@pytest.mark.parametrize("answer", ["n\n", ""])
def test_bench_that_writes_asks_and_stops_without_a_yes(verb: str, answer: str) -> None:
    command = ["bench", verb, "--partitions", "0-3", "-n", "8", *WHERE]
    result = CliRunner().invoke(app, command, input=answer)
    assert result.exit_code == 1
    text = " ".join(result.stderr.split())
    assert "appended to partitions 0-3 of /waltz/orders in 127.0.0.1:1" in text
    assert "cannot be removed. Continue?" in text
    assert "ZooKeeper" not in text, "nothing was opened"
