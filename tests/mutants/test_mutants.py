"""Every planted bug and each of its tests exists; the hunt catches the quickest bugs."""

from __future__ import annotations

import ast
import os
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import TypeGuard

import pytest

from tests.mutants.hunt import Caught, found_at_exit
from tests.mutants.hunters import Hunt, Hunters
from tests.mutants.planted import PLANTED
from tests.mutants.planting import ROOT, Nodes, Package, Planted, Seeds, module_name, nodes
from tests.mutants.recorded import Record, read_records, write_records

LEAST_PLANTED = 120
QUICK = (
    "the last record of a batch is dropped",
    "a batch conflicts with its own locks",
    "records cached under the wrong id",
)


@pytest.mark.parametrize("planted", PLANTED, ids=lambda planted: planted.name)
def test_planted_text_is_found_once_and_compiles(planted: Planted) -> None:
    path, text = planted.place()
    assert text != path.read_text()
    compile(text, str(path), "exec")


@pytest.mark.parametrize("planted", PLANTED, ids=lambda planted: planted.name)
def test_tests_that_catch_a_planted_bug_exist(planted: Planted) -> None:
    match planted.caught_by:
        case Nodes(names):
            assert names
            for name in names:
                file, *within = name.partition("[")[0].split("::")
                assert within, f"{name} names a whole file: name the test"
                assert within in declared_tests(ROOT / "tests" / file), name


def declared_tests(file: Path) -> list[list[str]]:
    """Return the names of the test functions in ``file``, with their classes."""
    found = []
    for node in ast.parse(file.read_text()).body:
        if isinstance(node, ast.ClassDef):
            found += [[node.name, test.name] for test in node.body if is_test(test)]
        elif is_test(node):
            found.append([node.name])
    return found


def is_test(node: ast.stmt) -> TypeGuard[ast.FunctionDef | ast.AsyncFunctionDef]:
    return isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) and node.name.startswith("test")


def test_names_of_planted_bugs_are_unique() -> None:
    assert len({planted.name for planted in PLANTED}) == len(PLANTED) >= LEAST_PLANTED


@pytest.mark.parametrize(
    ("file", "module"),
    [
        ("waltz/net/core/backoff.py", "waltz.net.core.backoff"),
        ("waltz/net/__init__.py", "waltz.net"),
        ("services/server/waltz_server/core/peer.py", "waltz_server.core.peer"),
        ("operator/waltz_operator/main.py", "waltz_operator.main"),
    ],
)
def test_module_name_of_a_file_is_its_import_name(file: str, module: str) -> None:
    assert module_name(ROOT / file) == module


@pytest.fixture(scope="module")
def hunters() -> Iterator[Hunters]:
    """A worker with a process that has imported the product and the simulator."""
    with Hunters(1, ()) as hunters:
        yield hunters


@pytest.mark.parametrize("name", QUICK)
def test_quickest_planted_bugs_are_caught(hunters: Hunters, name: str) -> None:
    hunted = hunters.hunt(replace(planted_bug(name), caught_by=Seeds(20)))
    assert hunted.caught is not None, hunted.failed


def test_bug_outside_of_functions_is_hunted_in_a_new_process(hunters: Hunters) -> None:
    """What a module computes when it is imported cannot be replaced afterwards."""
    bug = Planted(
        "a constant is wrong",
        Package.NET,
        "default_factory=_ReloadedContext, init=False, repr=False, compare=False\n    )\n    _dial",
        "default_factory=_ReloadedContext, init=False, repr=True, compare=False\n    )\n    _dial",
        "Each TLS configuration shows its context.",
        Seeds(1),
    )
    assert (hunters.hunt(bug).caught, hunters.hunt(bug).failed) == (None, "")


def test_bug_in_a_module_that_is_not_imported_is_caught_in_a_new_process(hunters: Hunters) -> None:
    """The finder of pytest would find the unchanged module."""
    hunted = hunters.hunt(planted_bug("a benchmark does not ask"))
    assert hunted.caught is not None, hunted.failed


def test_hunt_without_a_bug_catches_nothing() -> None:
    """A hunt that reported a failure of its own as a caught bug would prove nothing."""
    passing = "test_module_name_of_a_file_is_its_import_name"
    assert alarms_without_bug(f"mutants/test_mutants.py::{passing}") == []
    (missing,) = alarms_without_bug("mutants/test_mutants.py::test_missing")
    assert "pytest ended" in missing


_TEST_WITH_IGNORED_TIMEOUT = """
import asyncio, signal

async def waits():
    fail_test = signal.getsignal(signal.SIGALRM)

    def raise_in_a_callback(*arguments):
        signal.signal(signal.SIGALRM, fail_test)
        asyncio.get_running_loop().call_soon(fail_test, *arguments)

    signal.signal(signal.SIGALRM, raise_in_a_callback)
    await asyncio.Event().wait()

def test_waits():
    asyncio.run(waits())
"""
_RUN_FOR_A_SECOND = """
import sys
from tests.mutants.hunt import run_tests
print(run_tests(sys.argv[1:], seconds=1).text)
"""


def test_test_without_end_fails_although_asyncio_has_caught_its_timeout(tmp_path: Path) -> None:
    test = tmp_path / "test_waits.py"
    test.write_text(_TEST_WITH_IGNORED_TIMEOUT)
    assert "Timeout" in text_of_hunt(_RUN_FOR_A_SECOND, f"{test}::test_waits")


_TEST_THAT_CATCHES_EVERY_TIMEOUT = """
import signal

def test_waits():
    while True:
        try:
            signal.pause()
        except BaseException:
            pass
"""
_RUN_FOR_A_MOMENT = """
import sys
from tests.mutants.hunt import run_tests
run_tests(sys.argv[1:], seconds=0.2)
"""


def test_test_that_catches_its_timeouts_ends_the_hunt_as_caught(tmp_path: Path) -> None:
    test = tmp_path / "test_waits.py"
    test.write_text(_TEST_THAT_CATCHES_EVERY_TIMEOUT)
    assert "not by exceptions" in text_of_hunt(_RUN_FOR_A_MOMENT, f"{test}::test_waits")


_TEST_THAT_FAILS_SLOWLY = """
import pytest, signal

class Slow:
    def __repr__(self):
        signal.pause()

def test_fails():
    assert Slow() is None
"""


def test_timeout_in_the_report_of_a_failure_is_caught(tmp_path: Path) -> None:
    """The exception of the time limit is then an error of pytest itself."""
    test = tmp_path / "test_fails.py"
    test.write_text(_TEST_THAT_FAILS_SLOWLY)
    assert "Timeout" in text_of_hunt(_RUN_FOR_A_SECOND, f"{test}::test_fails")


_WAITING_TEST = """
import signal, subprocess, sys, tempfile

def test_waits():
    with open({fifo!r}, "w") as fifo:
        waits = [sys.executable, "-c", "import signal; signal.pause()"]
        subprocess.Popen(waits, pass_fds=[fifo.fileno()])
        print(tempfile.mkdtemp(), file=fifo, flush=True)
        signal.pause()
"""


def test_interrupted_hunt_ends_its_processes_and_removes_its_files(tmp_path: Path) -> None:
    fifo, test = tmp_path / "fifo", tmp_path / "test_waits.py"
    os.mkfifo(fifo)
    test.write_text(_WAITING_TEST.format(fifo=str(fifo)))
    bug = replace(PLANTED[0], caught_by=nodes(f"{test}::test_waits"))
    hunts: list[Hunt] = []
    with suppress(KeyboardInterrupt), Hunters(1, [bug]) as hunters:
        thread = threading.Thread(target=lambda: hunts.extend(hunters.hunt_all()))
        thread.start()
        reading = fifo.open()
        folder = Path(reading.readline().rstrip("\n"))
        assert folder.exists()
        raise KeyboardInterrupt
    assert reading.read() == "", "every process that could write has ended"
    reading.close()
    assert not folder.exists()
    thread.join()
    assert [hunt.failed for hunt in hunts] == ["interrupted"]


def alarms_without_bug(name: str) -> list[str]:
    with Hunters(1, [replace(PLANTED[0], caught_by=nodes(name))]) as hunters:
        return hunters.find_without_bug()


def test_change_without_an_effect_survives(hunters: Hunters) -> None:
    """A hunt that catches a harmless change would catch every bug."""
    fastest = planted_bug("the fastest replica commits")
    harmless = fastest.old.replace("\n", "  # the same\n")
    hunted = hunters.hunt(replace(fastest, new=harmless, caught_by=Seeds(1)))
    assert (hunted.caught, hunted.failed) == (None, "")


def text_of_hunt(program: str, name: str) -> str:
    """Return what a process says that runs the test ``name``; a busy one ends by its exit code."""
    run = [sys.executable, "-c", program, name]
    done = subprocess.run(run, capture_output=True, text=True, check=False, timeout=60, cwd=ROOT)
    found = done.stdout if done.returncode == 0 else found_at_exit(done.returncode)
    return found.text if isinstance(found, Caught) else found


def planted_bug(name: str) -> Planted:
    (planted,) = (p for p in PLANTED if p.name == name)
    return planted


def test_known_seed_is_tried_first_and_limits_the_others() -> None:
    assert list(Seeds(4, known=2).in_order()) == [2, 0, 1, 3]
    assert Seeds().known_to_catch(1) == Seeds(40, known=1)
    assert Seeds().known_to_catch(30) == Seeds(120, known=30)
    assert Seeds().known_to_catch(900) == Seeds(1000, known=900)


def test_records_are_read_as_they_were_written(tmp_path: Path) -> None:
    file = tmp_path / "recorded.json"
    assert read_records(file) == {}
    records = {"by a seed": Record(1.5, 0), "by a test": Record(0.3)}
    write_records(records, file)
    assert read_records(file) == records


def test_records_are_of_planted_bugs() -> None:
    stale = read_records().keys() - {planted.name for planted in PLANTED}
    assert not stale, "run: python -m tests.mutants --record"
