"""One sample for all pages that wait, none while no page waits, and failures that are shown."""

from __future__ import annotations

import asyncio
from contextlib import aclosing
from dataclasses import replace
from typing import Any

import pytest
from typing_extensions import override

from tests.support.console_world import SILENT, sample, storage
from tests.support.virtual_time import on_virtual_time
from waltz.admin.core.sample import Sample
from waltz.admin.core.storage_figures import StorageFigures
from waltz.admin.monitoring import Monitor
from waltz.console.shell.poller import ConsoleTarget, Poller, SampleFailed, Source
from waltz.metadata.cluster import NoCluster
from waltz.metadata.store import StoreError
from waltz.metadata.zookeeper_access import OPEN_ACCESS, BadCredentials
from waltz.net import PLAINTEXT

INTERVAL = 2.0
TARGET = ConsoleTarget("zk:2181", "/waltz", PLAINTEXT, OPEN_ACCESS, INTERVAL, 1.0)


class ScriptedSource(Source):
    """Returns scripted samples, the last one for ever. A text instead of one is a failure."""

    def __init__(self, *script: Sample | str, target: ConsoleTarget = TARGET) -> None:
        super().__init__(target)
        self.script = list(script) or [sample()]
        self.times: list[float] = []
        self.gate = asyncio.Event()
        self.gate.set()

    @override
    async def sample(self) -> Sample:
        self.times.append(asyncio.get_running_loop().time())
        await self.gate.wait()
        outcome = self.script.pop(0) if len(self.script) > 1 else self.script[0]
        if isinstance(outcome, str):
            raise SampleFailed(outcome)
        return outcome


def started(source: Source) -> Poller:
    return Poller(source, wall_clock=lambda: 1000.0)


@on_virtual_time
async def test_all_requests_that_wait_share_one_sample() -> None:
    source = ScriptedSource()
    async with aclosing(started(source)) as poller:
        source.gate.clear()
        waiting = [asyncio.create_task(poller.newer_than(0)) for _ in range(50)]
        await asyncio.sleep(0)
        source.gate.set()
        values = await asyncio.gather(*waiting)
        assert [value["number"] for value in values] == [1] * 50
        assert len(source.times) == 1


@on_virtual_time
async def test_view_reports_a_disk_with_less_free_space_than_the_target_names() -> None:
    now = sample(storages={"c:1": storage(figures=StorageFigures(150, 1000))})
    for min_disk_free, expected in ((15.0, []), (15.1, ["The disk of storage c:1 is 85 % full."])):
        source = ScriptedSource(now, target=replace(TARGET, min_disk_free=min_disk_free))
        async with aclosing(started(source)) as poller:
            health = (await poller.newer_than(0))["health"]
        assert [each["text"] for each in health["statements"]] == expected


@on_virtual_time
async def test_next_sample_waits_for_the_interval() -> None:
    source = ScriptedSource()
    async with aclosing(started(source)) as poller:
        number = 0
        for _ in range(4):
            number = (await poller.newer_than(number))["number"]
        first = source.times[0]
        assert [at - first for at in source.times] == [0.0, 2.0, 4.0, 6.0]


@on_virtual_time
async def test_no_sample_is_taken_while_no_page_waits() -> None:
    source = ScriptedSource()
    async with aclosing(started(source)) as poller:
        await poller.newer_than(0)
        await asyncio.sleep(100 * INTERVAL)
        assert len(source.times) == 1


@on_virtual_time
async def test_sample_that_no_page_waits_for_any_more_is_not_taken() -> None:
    source = ScriptedSource()
    async with aclosing(started(source)) as poller:
        await poller.newer_than(0)
        waiting = asyncio.create_task(poller.newer_than(1))
        await asyncio.sleep(INTERVAL / 2)
        waiting.cancel()
        await asyncio.sleep(10 * INTERVAL)
        assert len(source.times) == 1


@on_virtual_time
async def test_page_that_is_closed_does_not_end_the_sample_of_others() -> None:
    source = ScriptedSource()
    async with aclosing(started(source)) as poller:
        source.gate.clear()
        closed, open_still = (asyncio.create_task(poller.newer_than(0)) for _ in range(2))
        await asyncio.sleep(0.1)
        closed.cancel()
        await asyncio.sleep(0.1)
        source.gate.set()
        assert (await open_still)["number"] == 1


@on_virtual_time
async def test_newest_view_is_returned_at_once_only_while_it_is_current() -> None:
    source = ScriptedSource()
    async with aclosing(started(source)) as poller:
        await poller.newer_than(0)
        assert (await poller.newer_than(0))["number"] == 1
        await asyncio.sleep(100 * INTERVAL)
        assert (await poller.newer_than(0))["number"] == 2


@pytest.mark.parametrize("idle_seconds", [0.0, 100 * INTERVAL])
@on_virtual_time
async def test_request_during_a_sample_waits_for_its_view(idle_seconds: float) -> None:
    """The view before it is out of date; before the first sample there is none."""
    source = ScriptedSource()
    async with aclosing(started(source)) as poller:
        if idle_seconds:
            await poller.newer_than(0)
            await asyncio.sleep(idle_seconds)
        source.gate.clear()
        waiting = []
        for number in (60, 57):  # Of pages that were loaded from an earlier process.
            waiting.append(asyncio.create_task(poller.newer_than(number)))
            await asyncio.sleep(INTERVAL / 4)
        source.gate.set()
        values = await asyncio.gather(*waiting)
        assert [value["number"] for value in values] == [2 if idle_seconds else 1] * 2


@on_virtual_time
async def test_failed_sample_is_shown_and_the_next_one_replaces_it() -> None:
    source = ScriptedSource(sample(1.0), "ZooKeeper is away", sample(5.0, storages={"a:1": SILENT}))
    async with aclosing(started(source)) as poller:
        values = [await poller.newer_than(number) for number in range(3)]
        assert [value["problem"] for value in values] == [None, "ZooKeeper is away", None]
        assert [value["health"]["state"] for value in values] == ["healthy", "unknown", "degraded"]
        assert len(values[1]["partitions"]) == 2
        assert [entry["kind"] for entry in values[2]["timeline"]] == ["storage"]


@on_virtual_time
async def test_long_interval_gives_a_rate() -> None:
    source = ScriptedSource(sample(0.0), sample(60.0), target=replace(TARGET, interval=60.0))
    async with aclosing(started(source)) as poller:
        await poller.newer_than(0)
        (point,) = (await poller.newer_than(1))["rates"]
        assert point["transactions_per_second"] == 0.0


class UnopenedSource(Source):
    """Fails with ``error`` when it connects."""

    def __init__(self, error: Exception) -> None:
        super().__init__(TARGET)
        self.error = error

    @override
    async def _open(self) -> Monitor:
        raise self.error


@pytest.mark.parametrize(
    ("error", "remedy"),
    [
        (NoCluster("there is no cluster at /waltz"), "Check the path, or create the cluster"),
        (BadCredentials("cannot read zk.txt"), "Correct the file"),
        (StoreError("no session"), "Check that a majority of ZooKeeper's servers is running"),
    ],
)
@on_virtual_time
async def test_problem_of_a_sample_is_shown_with_its_own_remedy(
    error: Exception, remedy: str
) -> None:
    async with aclosing(started(UnopenedSource(error))) as poller:
        value = await poller.newer_than(0)
    assert value["problem"] == str(error)
    (statement,) = value["health"]["statements"]
    assert statement["remedy"].startswith(remedy)


@on_virtual_time
async def test_unexpected_error_of_a_sample_does_not_end_the_poller() -> None:
    class Broken(ScriptedSource):
        @override
        async def sample(self) -> Sample:
            if not self.times:
                self.times.append(0.0)
                raise RuntimeError("a defect")
            return await super().sample()

    async with aclosing(started(Broken())) as poller:
        with pytest.raises(RuntimeError, match="a defect"):
            await poller.newer_than(0)
        assert (await poller.newer_than(0))["number"] == 1


@on_virtual_time
async def test_zookeeper_that_does_not_answer_fails_the_sample_in_time() -> None:
    class Hanging(Source):
        @override
        async def _open(self) -> Any:
            await asyncio.Event().wait()

    with pytest.raises(SampleFailed, match=r"ZooKeeper at zk:2181 did not answer within 5 s"):
        await Hanging(TARGET).sample()


class DefectiveSource(Source):
    """Fails in its query of the servers, or in its sample, with an error that is a defect."""

    def __init__(self, *, in_sample: bool) -> None:
        super().__init__(TARGET)
        self.in_sample = in_sample
        self.began, self.closed = asyncio.Event(), asyncio.Event()
        self._opened.callback(self.closed.set)

    @override
    async def sample(self) -> Sample:
        if self.in_sample:
            await self._fail_when_cancelled()
        self._query_reached(sample())
        return sample()

    @override
    async def _query_servers(self, _: Sample) -> None:
        await self._fail_when_cancelled()

    async def _fail_when_cancelled(self) -> None:
        self.began.set()
        try:
            await asyncio.Event().wait()
        finally:
            raise RuntimeError("a defect")


@pytest.mark.parametrize("in_sample", [False, True])
@on_virtual_time
async def test_error_of_work_that_closing_ends_is_logged_and_connections_are_closed(
    in_sample: bool, caplog: pytest.LogCaptureFixture
) -> None:
    source = DefectiveSource(in_sample=in_sample)
    poller = started(source)
    request = asyncio.create_task(poller.newer_than(0))
    await source.began.wait()
    await poller.aclose()
    assert source.closed.is_set()
    assert [record.exc_info is not None for record in caplog.records] == [True]
    assert "it closes its connections" in caplog.text
    await asyncio.wait([request])
    assert isinstance(request.exception(), RuntimeError) is in_sample
