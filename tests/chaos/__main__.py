"""Run a cluster of real processes under faults, and check what its clients saw.

``python -m tests.chaos --minutes 5 --seed 1 --report DIR``, or ``make chaos``. Exits with 1 if a
guarantee is violated. DIR keeps the history, the report and, after a violation, the logs.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import logging
import shutil
import signal
import sys
import tempfile
from pathlib import Path

from tests.chaos.checker import Violation
from tests.chaos.cluster import EngineChoice
from tests.chaos.report import Run, page
from tests.chaos.run import ChaosRun


async def supervised(run: ChaosRun, seconds: float) -> tuple[Run, list[Violation]]:
    """Run until the end or until a signal; both end all processes."""
    loop, task = asyncio.get_running_loop(), asyncio.current_task()
    assert task is not None
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, task.cancel)
    return await run.run(seconds)


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.chaos", description=__doc__)
    parser.add_argument("--minutes", type=float, default=5.0)
    parser.add_argument("--seed", type=int, default=0, help="the seed of the choice of faults")
    parser.add_argument(
        "--engine",
        type=EngineChoice,
        choices=list(EngineChoice),
        default=EngineChoice.MIXED,
        help="the storage engine of the storages; mixed: some have wal, the others files",
    )
    parser.add_argument("--report", type=Path, default=Path("build/chaos"))
    options = parser.parse_args()
    logging.basicConfig(level=logging.ERROR)
    # The libraries report each lost connection: here most of them are lost on purpose.
    for name in ("kazoo", "waltz", "asyncio"):
        logging.getLogger(name).setLevel(logging.CRITICAL)
    options.report.mkdir(parents=True, exist_ok=True)
    directory = Path(tempfile.mkdtemp(prefix="waltz-chaos-"))
    try:
        with (options.report / "history.jsonl").open("w") as file:
            chaos = ChaosRun(directory, options.seed, file, options.engine)
            found, violations = asyncio.run(supervised(chaos, options.minutes * 60))
        html = options.report / "report.html"
        html.write_text(page(found, chaos.events, violations))
        if violations:
            with contextlib.suppress(FileNotFoundError):
                logs = options.report / "logs"
                shutil.copytree(directory / "cluster" / "logs", logs, dirs_exist_ok=True)
    finally:
        shutil.rmtree(directory, ignore_errors=True)
    for violation in violations[:20]:
        print(f"VIOLATED: {violation.guarantee}: partition {violation.partition}: {violation.text}")
    verdict = f"{len(violations)} violations" if violations else "all guarantees held"
    print(f"seed {options.seed}: {verdict}; {len(chaos.events):,} events; {html}")
    return 1 if violations else 0


if __name__ == "__main__":
    sys.exit(main())
