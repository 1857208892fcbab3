"""Test that a broken invariant ends the process, and a lost connection does not."""

from __future__ import annotations

import asyncio
import subprocess
import sys

from waltz.runtime.process import run_until_done

_PROGRAM = """
import asyncio
from waltz.runtime.process import run_loop, set_up_logging, fail_stop_on_error

async def task():
    {action}

async def main():
    loop = asyncio.get_running_loop()
    {begin}
    await asyncio.sleep(0)
    await asyncio.sleep(0.05)
    print("still here", flush=True)

set_up_logging(verbose=False)
run_loop(main())
"""


def run(action: str, begin: str, *flags: str) -> subprocess.CompletedProcess[str]:
    program = _PROGRAM.format(action=action, begin=begin)
    return subprocess.run(
        [sys.executable, *flags, "-c", program], capture_output=True, text=True, timeout=60
    )


def test_broken_invariant_in_a_task_ends_the_process() -> None:
    ended = run("assert False, 'the log has a gap'", "fail_stop_on_error(loop.create_task(task()))")
    assert ended.returncode == 70
    assert "the log has a gap" in ended.stderr
    assert "still here" not in ended.stdout


def test_broken_invariant_in_a_callback_ends_the_process() -> None:
    ended = run("pass", "loop.call_soon(lambda: {}['missing'])")
    assert ended.returncode == 70
    assert "KeyError" in ended.stderr


def test_lost_connection_in_a_task_does_not_end_the_process() -> None:
    ended = run(
        "raise ConnectionResetError('gone')", "fail_stop_on_error(loop.create_task(task()))"
    )
    assert ended.returncode == 0
    assert "still here" in ended.stdout


def test_process_refuses_to_run_without_assertions() -> None:
    ended = run("pass", "pass", "-O")
    assert ended.returncode == 1
    assert "without python -O" in ended.stderr


async def test_stop_waits_until_the_cancelled_work_has_cleaned_up() -> None:
    """Otherwise the event loop would be closed while files and connections are still open."""
    stop = asyncio.Event()
    cleaned_up = []

    async def work() -> None:
        stop.set()
        try:
            await asyncio.Event().wait()
        finally:
            await asyncio.sleep(0.01)
            cleaned_up.append(True)

    await run_until_done(work(), stop)
    assert cleaned_up == [True]
