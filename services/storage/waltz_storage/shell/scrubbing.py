"""Run the scrubber: perform its checks by way of the engine, and log what it finds.

Damaged records that the start of the storage has found are logged in the same way.

The engine has a *lane* for each partition, which does the jobs of the partition one after the other
(see `core.engine.engine`). Each check is a read in the lane of its partition: an append overtakes a
check that has not begun, and waits for a check that runs. Touches the event loop, and the disk
through the checks.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Sequence
from functools import partial

from waltz_storage.core.engine.engine import Arrival, ReadJob
from waltz_storage.core.engine.rounds import Answer, Reply
from waltz_storage.core.errors import RequestRefused
from waltz_storage.core.log.log_check import CheckedRecords
from waltz_storage.core.log.log_reads import Steps
from waltz_storage.core.partitions.storage_directory import StorageDirectory
from waltz_storage.core.scrub.findings import Findings, Ranges
from waltz_storage.core.scrub.listing import listed
from waltz_storage.core.scrub.scrubber import Scrubber, ScrubCheck, ScrubPause

log = logging.getLogger(__name__)

REMEDY = (
    "repair them with waltz storage recover HOST:PORT PARTITION, with HOST:PORT of this storage"
)

_Outcome = CheckedRecords | RequestRefused | OSError


def note_openings(findings: Findings, directory: StorageDirectory, *, repairs_itself: bool) -> None:
    """Note and log the damaged records that the opening of ``directory`` has found.

    ``repairs_itself`` says whether the storage repairs damaged records by itself.
    """
    for number, partition in sorted(directory.partitions.items()):
        ranges = findings.note_opening(number, partition.log.damaged_at_opening)
        if ranges:
            _log_damage("start", number, ranges, repairs_itself=repairs_itself)


class Scrubbing:
    """Performs what a scrubber decides.

    ``submit`` queues jobs for the engine. ``on_damage`` is called when new damage was found, to
    begin its repair. If ``on_damage`` is None, the storage repairs nothing by itself, and the log
    names the command for the repair. ``after_pass`` is awaited at the end of each pass, with the
    number of passes so far.
    """

    def __init__(
        self,
        scrubber: Scrubber,
        directory: StorageDirectory,
        submit: Callable[[Sequence[Arrival]], None],
        clock: Callable[[], float],
        on_damage: Callable[[], None] | None = None,
        after_pass: Callable[[int], Awaitable[None]] | None = None,
    ) -> None:
        self._on_damage = on_damage
        self._after_pass = after_pass
        self.scrubber = scrubber
        self._directory = directory
        self._submit = submit
        self._clock = clock

    async def run(self) -> None:
        """Check the logs again and again, until the task is cancelled."""
        scrubber = self.scrubber
        while True:
            passes = scrubber.progress.passes
            action = scrubber.next_action(self._clock(), self._sizes)
            # `next_action` ends the pass when all partitions were checked.
            if scrubber.progress.passes > passes:
                self._log_pass()
                if self._after_pass is not None:
                    await self._after_pass(scrubber.progress.passes)
                    # ``action`` is a pause, of which a part, or all, has passed meanwhile. So the
                    # scrubber decides again.
                    continue
            match action:
                case ScrubPause(seconds):
                    await asyncio.sleep(seconds)
                case ScrubCheck():
                    await self._perform(action)

    async def _perform(self, check: ScrubCheck) -> None:
        """Submit a check to the lane of its partition, and wait until its outcome is noted.

        The outcome is noted as soon as it is delivered. The outcome of a repair of the same records
        may be delivered next, and must be noted after that of the check.
        """
        noted: asyncio.Future[None] = asyncio.get_running_loop().create_future()

        def reply(outcome: _Outcome) -> None:
            # The future is cancelled if the storage stops during the check.
            if not noted.done():
                self._note(check, outcome)
                noted.set_result(None)

        read = ReadJob(partial(_check_steps, self._directory, check, reply))
        self._submit([Arrival(check.partition, read)])
        await noted

    def _note(self, check: ScrubCheck, outcome: _Outcome) -> None:
        """Report the outcome of a check to the scrubber, and log new damage.

        A RequestRefused means that the partition was closed during the pass; it is not logged.
        """
        now, partition = self._clock(), check.partition
        if isinstance(outcome, CheckedRecords):
            new_ranges = self.scrubber.note(check, outcome, now)
            if new_ranges:
                repairs_itself = self._on_damage is not None
                _log_damage("scrubber", partition, new_ranges, repairs_itself=repairs_itself)
                if self._on_damage is not None:
                    self._on_damage()
            return
        self.scrubber.note(check, None, now)  # The records were not checked.
        if isinstance(outcome, OSError):
            log.warning(
                "scrubber: the files of partition %d cannot be opened: %s; this pass skips the "
                "rest of the partition",
                partition,
                outcome.strerror,
            )

    def _log_pass(self) -> None:
        """Log the end of a pass."""
        progress, damaged = self.scrubber.progress, self.scrubber.findings.count
        log.info(
            "scrubber: pass %d is complete: %d bytes checked; %d records are damaged now",
            progress.passes,
            progress.pass_bytes,
            damaged,
        )

    def _sizes(self) -> dict[int, int]:
        """Return the bytes in the log of each open partition."""
        # Copied in one step, because other threads open and close partitions.
        open_partitions = dict(self._directory.partitions)
        return {number: partition.log.size_bytes for number, partition in open_partitions.items()}


def _check_steps(
    directory: StorageDirectory, check: ScrubCheck, reply: Reply
) -> Steps[list[Answer]]:
    """Perform a check in the second step of its read, so that waiting appends are done first.

    The engine may do the first step of a read before the waiting appends. So the first step does
    nothing. A RequestRefused means that the partition is not open any more.
    """
    yield
    outcome: _Outcome
    try:
        outcome = directory.partition(check.partition).log.check(check.first_id, check.max_bytes)
    except (RequestRefused, OSError) as error:
        outcome = error
    return [(reply, outcome)]


def _log_damage(finder: str, partition: int, ranges: Ranges, *, repairs_itself: bool) -> None:
    """Log which records ``finder`` found damaged, and how they are repaired."""
    log.log(
        logging.WARNING if repairs_itself else logging.ERROR,
        "%s: partition %d has damaged records: %s; the storage serves its other records, and "
        "servers read the damaged ones from other replicas; %s",
        finder,
        partition,
        listed([str(ids) for ids in ranges], ", "),
        "the storage repairs them by itself" if repairs_itself else REMEDY,
    )
