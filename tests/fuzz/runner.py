"""Run fuzz targets: choose inputs, bound each check, store new inputs and findings.

Every input of a target follows from the seed and its number. An input must be done within a bound
of processor time and of memory. Some rounds are traced: their inputs are kept, to be changed
further, if they reached branches that none before had reached.
"""

from __future__ import annotations

import json
import resource
import signal
import traceback
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from importlib.util import find_spec
from pathlib import Path
from random import Random
from types import FrameType

import coverage

from tests.fuzz.target import Target

ROUND_INPUTS = 32
_TRACE_EVERY = 4
_CORPUS_INPUTS = 400
_FRESH = 0.15
_CHANGES = (1, 1, 1, 2, 2, 3, 3, 0)
"""How often an input is changed before it is checked; any of these is as likely."""
_SECONDS_PER_INPUT = 10.0
_GROWTH_LIMIT_KIB = 64 << 10
_MOST_FINDINGS = 5


class TooSlow(Exception):
    """An input took too much processor time."""


class TooMuchMemory(Exception):
    """An input took too much memory."""


@dataclass(frozen=True, slots=True)
class Finding:
    """An input that failed: ``number`` counts the target's inputs."""

    target: str
    seed: str
    number: int
    error: str
    data: bytes

    def save(self, folder: Path) -> Path:
        """Write it where it can be replayed from; returns the file."""
        folder.mkdir(exist_ok=True)
        path = folder / f"{self.target}-{self.seed}-{self.number}.json"
        path.write_text(
            json.dumps(
                {
                    "target": self.target,
                    "seed": self.seed,
                    "number": self.number,
                    "error": self.error,
                    "input": self.data.hex(),
                },
                indent=2,
            )
        )
        return path


@dataclass(slots=True)
class Tracer:
    """Branch coverage of the given modules, over all traced rounds of one campaign.

    Campaigns do not share it: the inputs that one keeps would depend on the progress of others.
    """

    modules: tuple[str, ...]
    coverage: coverage.Coverage = field(init=False)
    _arcs: int = 0

    def __post_init__(self) -> None:
        specs = [find_spec(module) for module in self.modules]
        files = [spec.origin for spec in specs if spec is not None and spec.origin is not None]
        self.coverage = coverage.Coverage(
            data_file=None, branch=True, config_file=False, include=files
        )

    @contextmanager
    def tracing(self) -> Iterator[None]:
        """Trace the code that runs in this context."""
        self.coverage.start()
        try:
            yield
        finally:
            self.coverage.stop()

    def found_more(self) -> bool:
        """Return whether branches were reached for the first time since the last call."""
        data = self.coverage.get_data()
        arcs = sum(len(data.arcs(path) or ()) for path in data.measured_files())
        before, self._arcs = self._arcs, arcs
        return arcs > before


class Campaign:
    """One target's inputs, one round after the other."""

    def __init__(self, target: Target, seed: str, *, traced: bool = False) -> None:
        self.target = target
        self.seed = seed
        self.inputs = 0
        self.accepted = 0
        self.findings: list[Finding] = []
        self.corpus: list[bytes] = []
        self.tracer = Tracer(target.modules) if traced else None
        self._rounds = 0

    @property
    def given_up(self) -> bool:
        """Whether there were enough findings."""
        return len(self.findings) >= _MOST_FINDINGS

    def round(self) -> None:
        """Check one round of inputs."""
        random = Random(f"{self.seed}/{self.target.name}/{self._rounds}")
        tracer = self.tracer if self._rounds % _TRACE_EVERY == 0 else None
        self._rounds += 1
        inputs = [self._next_input(random) for _ in range(ROUND_INPUTS)]
        if tracer is None:
            self._check_all(inputs)
            return
        with tracer.tracing():
            self._check_all(inputs)
        if tracer.found_more():
            self._keep(random, inputs)

    def _next_input(self, random: Random) -> bytes:
        data = b""
        try:
            if self.corpus and random.random() > _FRESH:
                data = random.choice(self.corpus)
            else:
                data = self.target.make(random)
                if len(self.corpus) < _CORPUS_INPUTS // 4:
                    self.corpus.append(data)
            for _ in range(random.choice(_CHANGES)):
                data = self.target.change(random, data, random.choice(self.corpus))
        except Exception:
            # Inputs are made and changed with the product's own encoders and decoders.
            self._found(data)
        return data

    def _check_all(self, inputs: list[bytes]) -> None:
        for data in inputs:
            self.inputs += 1
            try:
                self.accepted += checked(self.target, data)
            except Exception:
                self._found(data)

    def _found(self, data: bytes) -> None:
        error = traceback.format_exc(limit=-6)
        if all(_kind(error) != _kind(known.error) for known in self.findings):
            name, number = self.target.name, self.inputs
            self.findings.append(Finding(name, self.seed, number, error, data))

    def _keep(self, random: Random, inputs: list[bytes]) -> None:
        self.corpus += inputs
        while len(self.corpus) > _CORPUS_INPUTS:
            del self.corpus[random.randrange(len(self.corpus))]


def checked(target: Target, data: bytes) -> bool:
    """Check one input within the bounds; returns whether it was accepted."""
    before = _peak_kib()
    with _time_limit():
        accepted = target.check(data)
    if _peak_kib() - before > _GROWTH_LIMIT_KIB:
        raise TooMuchMemory(f"{(_peak_kib() - before) >> 10} MiB for {len(data)} bytes of input")
    return accepted


@contextmanager
def _time_limit() -> Iterator[None]:
    """Bound the processor time, not the time on the clock: the machine may be busy."""

    def over(_: int, __: FrameType | None) -> None:
        raise TooSlow(f"more than {_SECONDS_PER_INPUT:g} s of processor time")

    former = signal.signal(signal.SIGVTALRM, over)
    signal.setitimer(signal.ITIMER_VIRTUAL, _SECONDS_PER_INPUT)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_VIRTUAL, 0)
        signal.signal(signal.SIGVTALRM, former)


def _peak_kib() -> int:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss


def _kind(error: str) -> str:
    """Return the identity of a finding: where it was raised, and the violated property."""
    lines = [line for line in error.splitlines() if line.startswith("  File")]
    return (lines[-1] if lines else "") + error.splitlines()[-1][:60]
