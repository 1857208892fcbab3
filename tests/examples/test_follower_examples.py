"""The examples with a state follower: unique names, the outbox, the job queue, under faults."""

from __future__ import annotations

import asyncio
from collections import Counter
from typing import Any

import waltz
from examples.job_queue import Jobs, Worker
from examples.outbox import Outbox, relay
from examples.unique_names import Names, register
from waltz.testing import Faults, InProcessCluster

FAULTS = Faults(delay_seconds=(0, 0.001), lost=0.05, conflict=0.05)
JSON = waltz.JsonSerializer()


async def test_one_of_many_programs_gets_each_name() -> None:
    wanted = [f"name{number}" for number in range(5)]

    async def program(cluster: InProcessCluster, owner: str) -> list[str]:
        names = Names()
        async with (
            cluster.connect(serializer=JSON) as client,
            waltz.StateFollower(client, names) as follower,
        ):
            return [name for name in wanted if await register(follower, names, name, owner)]

    async with InProcessCluster(seed=3, faults=FAULTS) as cluster:
        got = await asyncio.gather(*(program(cluster, f"owner{n}") for n in range(4)))
        assert Counter(name for each in got for name in each) == Counter(wanted)
        assert len(cluster.transactions(0)) == len(wanted)


async def test_outbox_sends_again_what_was_not_reported_with_the_same_id() -> None:
    received: list[tuple[str, str]] = []

    async def send(message_id: str, text: str) -> None:
        received.append((message_id, text))

    async def crash(message_id: str, text: str) -> None:
        await send(message_id, text)
        raise ConnectionError("the relay dies after it has sent")

    async def run(cluster: InProcessCluster, sending: Any) -> int:
        outbox = Outbox()
        async with (
            cluster.connect(serializer=JSON) as client,
            waltz.StateFollower(client, outbox) as follower,
        ):
            try:
                return await relay(follower, outbox, sending)
            except ConnectionError:
                return -1

    async with InProcessCluster() as cluster:
        async with cluster.connect(serializer=JSON) as client:
            for text in ("a", "b", "c"):
                await client.append(0, {"order": text})
        assert await run(cluster, crash) == -1
        assert await run(cluster, send) == 3
        assert await run(cluster, send) == 0
    assert received == [("0/0", "a"), ("0/0", "a"), ("0/1", "b"), ("0/2", "c")]


async def test_each_job_has_one_result_although_workers_die() -> None:
    count = 30

    async def do(text: str) -> str:
        await asyncio.sleep(0.001)
        return text.upper()

    async def die(text: str) -> str:
        raise asyncio.CancelledError

    async def work(cluster: InProcessCluster, name: str, doing: Any) -> int:
        jobs = Jobs()
        async with (
            cluster.connect(serializer=JSON) as client,
            waltz.StateFollower(client, jobs) as follower,
        ):
            worker = Worker(follower, jobs, name, patience_seconds=0.3)
            accepted = 0
            while len(jobs.results) < count:
                accepted += await worker.work(doing)
                await asyncio.sleep(0.01)
            return accepted

    async with InProcessCluster(seed=5) as cluster:
        async with cluster.connect(serializer=JSON) as client:
            for number in range(count):
                await client.append(0, {"add": f"job{number}"})
        cluster.faults = FAULTS
        dying = asyncio.create_task(work(cluster, "dying", die))
        await asyncio.wait([dying])
        assert dying.cancelled()
        done = await asyncio.gather(*(work(cluster, f"worker{n}", do) for n in range(3)))
        assert sum(done) == count
        events = [JSON.deserialize(t.data) for t in cluster.transactions(0)]
    results = Counter(event["done"] for event in events if "done" in event)
    assert set(results.values()) == {1}
    assert len(results) == count


async def test_worker_that_was_too_slow_is_refused() -> None:
    async with InProcessCluster() as cluster:
        workers = []
        async with (
            cluster.connect(serializer=JSON) as client,
            cluster.connect(serializer=JSON) as other,
        ):
            one, two = Jobs(), Jobs()
            async with (
                waltz.StateFollower(client, one) as first,
                waltz.StateFollower(other, two) as second,
            ):
                job = await client.append(0, {"add": "x"})
                workers = [Worker(first, one, "slow", 0.0), Worker(second, two, "quick", 0.0)]
                await first.applied(0, job)
                slow = await workers[0].take()
                assert slow is not None
                await second.applied(0, slow[1])
                quick = await workers[1].take()
                assert quick is not None
                assert not await workers[0].report(*slow, "late")
                assert await workers[1].report(*quick, "done")
                assert two.results == {job: "done"}
