"""Memory of long messages is reused, and the garbage collector runs as often as is good."""

from __future__ import annotations

import asyncio
import gc
import subprocess
import sys
import weakref

import pytest

from tests.support.garbage import collector_off
from waltz.runtime import service
from waltz.runtime.configuration import Settings
from waltz.runtime.memory import collect_every

PROGRAM = """
import resource
from waltz.runtime.memory import keep_freed_memory

keep_freed_memory()

def faults():
    return resource.getrusage(resource.RUSAGE_SELF).ru_minflt

def messages(number):
    for _ in range(number):
        first = b"1" * (1 << 20)
        second = first + first
        third = first * 4

messages(4)
before = faults()
messages(50)
print(faults() - before)
"""


@pytest.mark.skipif(sys.platform != "linux", reason="a setting of glibc")
def test_memory_of_a_long_message_is_reused_by_the_next() -> None:
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM], stdout=subprocess.PIPE, text=True, check=True
    )
    # One message's 7 MiB have 1,792 pages.
    assert int(done.stdout) < 1000


COLLECTING = """
import gc
from waltz.runtime.memory import favour_speed

def runs():
    return sum(generation["collections"] for generation in gc.get_stats())

kept = [[] for _ in range(5_000)]
favour_speed()
before = runs()
kept += [[] for _ in range(15_000)]
print(runs() - before, gc.get_freeze_count() > 5_000)
"""


def test_collector_runs_after_twenty_thousand_objects_and_skips_older_ones() -> None:
    done = subprocess.run(
        [sys.executable, "-c", COLLECTING], stdout=subprocess.PIPE, text=True, check=True
    )
    assert done.stdout == "0 True\n"


class Cycle:
    """An object that only the garbage collector frees."""

    def __init__(self) -> None:
        self.own = self


async def test_cycles_are_freed_periodically_without_new_objects() -> None:
    freed = asyncio.Event()
    weakref.finalize(Cycle(), freed.set)
    gc.disable()
    collecting = asyncio.create_task(collect_every(0.001))
    try:
        await asyncio.wait_for(freed.wait(), 10)
    finally:
        gc.enable()
        collecting.cancel()
        await asyncio.gather(collecting, return_exceptions=True)


async def test_service_frees_cycles_while_it_runs(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(service, "_COLLECT_SECONDS", 0.001)
    freed = asyncio.Event()

    async def serve(_config: Settings, _stop: asyncio.Event) -> None:
        weakref.finalize(Cycle(), freed.set)
        await asyncio.wait_for(freed.wait(), 10)

    with collector_off():
        running = service.Service("waltz-test", "", "", Settings, serve)
        await service._serve(running, Settings())
