"""A job queue: each job has one result in the log, even if workers that took the job have died.

A worker takes the first open job under the lock of the job. If the worker has not reported the
result some time later, another worker takes the job. A result is accepted only from the last worker
that took the job: the lock of the job refuses the result of a worker that was too slow.

    python examples/job_queue.py HOST:PORT add TEXT...
    python examples/job_queue.py HOST:PORT work NAME
"""

import asyncio
import sys
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from typing import Any

import waltz

PARTITION = 0
Event = dict[str, Any]
Do = Callable[[str], Awaitable[str]]
"""Does a job; returns its result."""


@dataclass
class Jobs:
    """The state: the texts and the results of jobs, and when each job was last taken.

    The number of a job is the id of the transaction that added it. A *take* is a transaction by
    which a worker takes a job. ``takes`` has the id of each job's last take, and when this program
    read it: the clocks of two programs are never compared. ``applied`` is the id of the last
    transaction that the state contains.
    """

    texts: dict[int, str] = field(default_factory=dict)
    takes: dict[int, tuple[int, float]] = field(default_factory=dict)
    results: dict[int, str] = field(default_factory=dict)
    applied: int = -1

    async def mark(self, partition: int) -> int:
        """Return the id of the last transaction that the state contains."""
        return self.applied

    async def apply(self, transaction: waltz.Transaction[Event]) -> None:
        """Change the state by one event."""
        match transaction.data:
            case {"add": str(text)}:
                self.texts[transaction.id] = text
            case {"take": int(job)}:
                self.takes[job] = transaction.id, time.monotonic()
            case {"done": int(job), "result": str(result)}:
                self.results[job] = result
        self.applied = transaction.id

    def next_job(self, patience_seconds: float) -> int | None:
        """Return the first open job: it has no result, and no take within ``patience_seconds``."""
        now = time.monotonic()
        for job in self.texts:
            _, taken_at = self.takes.get(job, (-1, float("-inf")))
            if job not in self.results and now - taken_at >= patience_seconds:
                return job
        return None

    def lock(self, job: int) -> waltz.Lock:
        """Return the lock of a job."""
        return waltz.Lock("job", job)


class Worker:
    """Takes jobs and reports their results, one after the other.

    A job that another worker took more than ``patience_seconds`` ago is open again.
    """

    def __init__(
        self,
        follower: waltz.StateFollower[Event],
        jobs: Jobs,
        name: str,
        patience_seconds: float = 10.0,
    ) -> None:
        self.follower = follower
        self.jobs = jobs
        self.name = name
        self.patience_seconds = patience_seconds

    async def take(self) -> tuple[int, int] | None:
        """Take a job; return the job and the id of the take, None if no job is open."""
        chosen: int | None = None

        def decide(attempt: waltz.Attempt) -> waltz.Draft[Event] | None:
            nonlocal chosen
            chosen = self.jobs.next_job(self.patience_seconds)
            if chosen is None:
                return None
            event = {"take": chosen, "worker": self.name}
            return waltz.Draft(event, write_locks=[self.jobs.lock(chosen)])

        take = await self.follower.submit(PARTITION, decide)
        return None if take is None or chosen is None else (chosen, take)

    async def report(self, job: int, take: int, result: str) -> bool:
        """Report a result; return whether it is the job's result.

        Nothing is reported if another worker has taken the job since ``take``.
        """

        def decide(attempt: waltz.Attempt) -> waltz.Draft[Event] | None:
            last_take, _ = self.jobs.takes[job]
            if last_take != take or job in self.jobs.results:
                return None
            event = {"done": job, "result": result, "worker": self.name}
            return waltz.Draft(event, write_locks=[self.jobs.lock(job)])

        return await self.follower.submit(PARTITION, decide) is not None

    async def work(self, do: Do) -> int:
        """Do jobs until none is open; return how many results of this worker were accepted."""
        accepted = 0
        await self.follower.caught_up()
        taken = await self.take()
        while taken is not None:
            job, take = taken
            result = await do(self.jobs.texts[job])
            if await self.report(job, take, result):
                accepted += 1
            taken = await self.take()
        return accepted


async def main(zookeeper: str, verb: str, arguments: list[str]) -> None:
    """Add jobs, or do them."""

    async def do(text: str) -> str:
        return text.upper()

    jobs = Jobs()
    serializer = waltz.JsonSerializer()
    async with (
        waltz.connect(
            zookeeper, root="/waltz", tls=waltz.PLAINTEXT, serializer=serializer
        ) as client,
        waltz.StateFollower(client, jobs, [PARTITION]) as follower,
    ):
        if verb == "add":
            for text in arguments:
                print("job", await client.append(PARTITION, {"add": text}))
            return
        print(await Worker(follower, jobs, arguments[0]).work(do), "done")
        for job, result in sorted(jobs.results.items()):
            print(job, result)


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1], sys.argv[2], sys.argv[3:]))
