"""Run the numbered examples as their first lines say, on a real cluster."""

from __future__ import annotations

import asyncio
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

import waltz
from waltz.local import LocalCluster, Shape

EXAMPLES = Path(__file__).parents[2] / "examples"

Run = Callable[..., list[str]]
_MOST_RUNS = 20


@pytest.fixture(scope="module")
def fresh(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LocalCluster]:
    """A running cluster with nothing in its log but what the examples append."""
    running = LocalCluster(tmp_path_factory.mktemp("cluster"), Shape(partitions=3, storages=3))
    asyncio.run(running.start())
    yield running
    asyncio.run(running.stop())


@pytest.fixture
def run(fresh: LocalCluster, tmp_path: Path) -> Run:
    """Runs an example and returns the lines it prints."""

    def run_it(name: str, *arguments: str) -> list[str]:
        ended = subprocess.run(
            [sys.executable, EXAMPLES / name, fresh.zookeeper, *arguments],
            cwd=tmp_path,
            capture_output=True,
            text=True,
            timeout=60,
            check=False,
        )
        assert ended.returncode == 0, ended.stderr
        assert ended.stderr == ""
        return ended.stdout.splitlines()

    return run_it


def test_hello_example_prints_its_transaction(run: Run) -> None:
    [line] = run("01_hello.py")
    assert line.endswith(" b'hello'")


def test_hello_example_has_ten_lines() -> None:
    assert len((EXAMPLES / "01_hello.py").read_text().splitlines()) == 10


def test_locks_example_numbers_invoices_without_gaps(run: Run) -> None:
    numbers = [int(line.split()[1]) for line in run("02_locks.py")]
    assert numbers == list(range(numbers[0], numbers[0] + 10))
    [first, *_] = run("02_locks.py")
    assert first == f"invoice {numbers[-1] + 1}"


def test_follow_example_continues_after_its_last_transaction(run: Run) -> None:
    first = run("03_follow.py", "place")
    second = run("03_follow.py", "place")
    ids = [int(line.split()[0]) for line in first + second]
    assert ids == list(range(len(ids)))
    assert second[-1].endswith("one more line")


def test_serializers_example_reads_its_values(run: Run) -> None:
    assert run("04_serializers.py") == ["roof: [4.5, 5.25]"]


def test_callbacks_example_takes_each_word_once(run: Run) -> None:
    words = [f"word-{EXAMPLES.stat().st_ino}", "waltz"]
    run("05_callbacks.py", *words)
    assert run("05_callbacks.py", *words) == [f"{word}: taken" for word in words]


def test_state_store_example_counts_every_transaction(run: Run, fresh: LocalCluster) -> None:
    async def logged() -> int:
        async with waltz.connect(fresh.zookeeper, root="/waltz", tls=waltz.PLAINTEXT) as client:
            return sum([1 + await client.high_water_mark(number) for number in range(3)])

    # A run waits for its own append only. So a run may end before it has counted what was in the
    # other partitions; a later run counts the rest.
    for runs in range(1, _MOST_RUNS):
        lines = run("06_state_store.py", "sqlite:///counts.db")
        counted, appended = sum(int(line.split()[-1]) for line in lines), asyncio.run(logged())
        assert counted <= appended
        if runs > 1 and counted == appended:
            return
    raise AssertionError(f"{counted} of {appended} transactions are counted")
