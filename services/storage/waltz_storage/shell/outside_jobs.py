"""Submit jobs to the engine whose answers return to the main event loop. Touches a mailbox.

The engine delivers answers on its own event loop. The jobs of administrators and of the scrubber
belong to the main event loop. So each of these jobs posts its answers to the mailbox of the main
event loop, and returns no answer to the engine.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial

from waltz_storage.core.engine.engine import AdminJob, Arrival, ReadJob
from waltz_storage.core.engine.rounds import Answer
from waltz_storage.core.log.log_reads import Steps
from waltz_storage.shell.mailbox import Mailbox


class OutsideJobs:
    """Submits jobs and reads to the engine; their answers are posted to ``mailbox``.

    It is for code on other event loops than that of the engine. ``submit`` is that of the engine.
    """

    def __init__(self, submit: Callable[[Sequence[Arrival]], None], mailbox: Mailbox) -> None:
        self._submit = submit
        self._mailbox = mailbox

    def submit(self, arrivals: Sequence[Arrival]) -> None:
        """Queue jobs and reads of administrators and of the scrubber."""
        self._submit([Arrival(partition, self._posting(job)) for partition, job in arrivals])

    def _posting(self, job: object) -> AdminJob | ReadJob:
        """Return a job that does ``job``, posts its answers and returns none."""
        if isinstance(job, ReadJob):
            return ReadJob(partial(self._post_read, job))
        assert callable(job), "an AdminJob is a function"
        return partial(self._post_job, job)

    def _post_job(self, job: AdminJob) -> list[Answer]:
        self._mailbox.post(job())
        return []

    def _post_read(self, read: ReadJob) -> Steps[list[Answer]]:
        self._mailbox.post((yield from read.begin()))
        return []
