"""A yardstick that does not end in time has ended before the next measurement begins."""

from __future__ import annotations

import asyncio
import signal
import subprocess
import sys
from asyncio.subprocess import PIPE, Process
from typing import Any

import pytest

from bench import yardstick
from bench.spark import yardstick as spark_yardstick

IGNORES_SIGTERM = """
import signal, time
signal.signal(signal.SIGTERM, signal.SIG_IGN)
print("ready", flush=True)
time.sleep(60)
"""


async def test_yardstick_is_terminated_after_timeout(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    started: list[Process] = []
    start = asyncio.create_subprocess_exec

    async def start_and_keep(*command: str, **options: Any) -> Process:
        started.append(await start(*command, **options))
        return started[-1]

    monkeypatch.setattr(asyncio, "create_subprocess_exec", start_and_keep)
    monkeypatch.setattr(yardstick, "_LONGEST_RUN_SECONDS", 0.05)
    with pytest.raises(RuntimeError, match="it did not end within five minutes"):
        await yardstick.read_yardstick("sleep 60", 1, 1, 1, 1)
    assert [process.returncode for process in started] == [-signal.SIGTERM]


async def test_yardstick_that_ignores_sigterm_is_killed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(yardstick, "_END_SECONDS", 0.05)
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-c", IGNORES_SIGTERM, stdout=PIPE
    )
    assert process.stdout is not None
    assert await process.stdout.readline() == b"ready\n"
    await yardstick._end(process)
    assert process.returncode == -signal.SIGKILL


def test_spark_yardstick_that_takes_too_long_fails(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(spark_yardstick, "_LONGEST_RUN_SECONDS", 0.05)
    with pytest.raises(subprocess.TimeoutExpired):
        spark_yardstick.rates("sleep 60")
