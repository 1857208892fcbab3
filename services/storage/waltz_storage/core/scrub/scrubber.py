"""Pure. What the scrubber checks next, at which rate, and what it has found.

A *pass* checks every record of every open partition once, in ascending order. The caller
(`shell.scrubbing`) asks for the next action, performs it, and reports the result. All times are in
seconds of the clock of the caller.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from waltz.runtime.core.token_bucket import TokenBucket
from waltz_storage.core.log.log_check import CheckedRecords
from waltz_storage.core.scrub.findings import Findings, Ranges

CHECK_BYTES = 256 << 10
"""How many bytes one check reads at most, unless a single record is longer.

An append that arrives during a check waits until the check ends."""

PASS_SECONDS = 3600.0
"""The least time from the beginning of one pass to the beginning of the next. Otherwise a storage
with little data would read it over and over."""

_NEGLIGIBLE_SECONDS = 1e-6
"""A shorter wait is a rounding error. A pause of that length might not change the clock, and would
then be repeated without end."""

_LEAST_RECORD_BYTES = 64
"""In the count against the rate, a record has at least this many bytes.

A check of records that cannot be read counts them as damaged and reads no byte. Without this bound,
such checks would follow each other without a pause."""


@dataclass(frozen=True, slots=True)
class ScrubCheck:
    """Check up to ``max_bytes`` of records of a partition, from ``first_id`` on."""

    partition: int
    first_id: int
    max_bytes: int = CHECK_BYTES


@dataclass(frozen=True, slots=True)
class ScrubPause:
    """Do nothing for this many seconds."""

    seconds: float


@dataclass(frozen=True, slots=True)
class ScrubProgress:
    """How far the scrubber is.

    ``passes`` is the number of complete passes. ``checked_bytes`` were read since the process
    started. ``passing`` says whether a pass has begun and is not complete. ``pass_bytes`` were read
    in this pass; if no pass is under way, in the last one. ``pass_size`` is the number of bytes
    that the logs had when that pass began.
    """

    passes: int
    checked_bytes: int
    pass_bytes: int
    pass_size: int
    passing: bool

    @property
    def share(self) -> float:
        """The part of the present pass that is done: 0 before the first, 1 between two passes."""
        if not self.passing:
            return 1.0 if self.passes else 0.0
        return min(1.0, self.pass_bytes / self.pass_size) if self.pass_size else 0.0


class Scrubber:
    """Decides what to check next. A rate of 0 ``bytes_per_second`` switches it off.

    The arguments ``now`` are always the present time. ``pass_seconds`` is the least time from the
    beginning of one pass to the beginning of the next.
    """

    def __init__(
        self, bytes_per_second: int, now: float, pass_seconds: float = PASS_SECONDS
    ) -> None:
        self.findings = Findings()
        self._bucket = (
            TokenBucket(bytes_per_second, capacity=CHECK_BYTES, now=now)
            if bytes_per_second
            else None
        )
        self._pass_seconds = pass_seconds
        self._passes = self._checked_bytes = self._pass_bytes = self._pass_size = 0
        self._passing = False
        self._next_pass = now
        """When the next pass begins at the earliest."""
        self._waiting: list[int] = []
        """The partitions that the present pass has not begun; the last one comes next."""
        self._current: ScrubCheck | None = None
        """The check whose result is awaited, or that comes next; None between two partitions."""

    @property
    def enabled(self) -> bool:
        """Whether the scrubber checks records."""
        return self._bucket is not None

    @property
    def progress(self) -> ScrubProgress:
        """How far the scrubber is."""
        return ScrubProgress(
            self._passes, self._checked_bytes, self._pass_bytes, self._pass_size, self._passing
        )

    def next_action(
        self, now: float, sizes: Callable[[], Mapping[int, int]]
    ) -> ScrubCheck | ScrubPause:
        """Return what to do next; ``sizes`` returns the bytes of the log of each open partition."""
        assert self._bucket is not None, "the scrubber is switched off"
        wait = self._bucket.wait_seconds(now)
        if wait > _NEGLIGIBLE_SECONDS:
            return ScrubPause(wait)
        if not self._passing:
            if now < self._next_pass:
                return ScrubPause(self._next_pass - now)
            self._begin_pass(now, sizes())
        if self._current is None and self._waiting:
            self._current = ScrubCheck(self._waiting.pop(), 0)
        if self._current is None:
            self._passing = False
            self._passes += 1
            return ScrubPause(max(0.0, self._next_pass - now))
        return self._current

    def note(self, check: ScrubCheck, checked: CheckedRecords | None, now: float) -> Ranges:
        """Note the result of the last `ScrubCheck`; return the damaged ranges that are new.

        ``checked`` is None if the partition could not be checked: this pass skips it.
        """
        assert self._bucket is not None, "the scrubber is switched off"
        assert check == self._current, "only the check that was asked for has a result"
        self._current = None
        if checked is None:
            return ()
        records = checked.next_id - checked.first_id
        self._bucket.take(max(checked.size, records * _LEAST_RECORD_BYTES), now)
        self._checked_bytes += checked.size
        self._pass_bytes += checked.size
        if checked.next_id < checked.end_id:
            assert records > 0, "a check must advance"
            self._current = ScrubCheck(check.partition, checked.next_id)
        return self.findings.note(check.partition, checked)

    def _begin_pass(self, now: float, sizes: Mapping[int, int]) -> None:
        """Begin a pass through the partitions in ``sizes``."""
        self._passing = True
        self._next_pass = now + self._pass_seconds
        self._waiting = sorted(sizes, reverse=True)
        self._pass_bytes, self._pass_size = 0, sum(sizes.values())
        # Forget the damage of partitions that were closed since the last pass.
        self.findings.keep(sizes)
