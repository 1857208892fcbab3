"""Run an attempt that continues after Spark has abandoned it. Started by `sabotage`."""

from __future__ import annotations

import json
import pickle
import sys
from pathlib import Path

import pyarrow as pa

import waltz.spark.writer
from tests.spark.conftest import wait_until
from tests.spark.faults import Faults
from tests.spark.sabotage import BATCH_ROWS
from waltz.spark.core.ledger import EpochIsOver
from waltz.spark.writer import TaskAttempt, WriterSession

MAX_WAIT_SECONDS = 240


def main(place: Path) -> None:
    """Write half of the rows, wait for the successor's commit, continue; record the result."""
    waltz.spark.writer._BATCH_ROWS = BATCH_ROWS
    where, task, columns = pickle.loads((place / "order").read_bytes())
    batches = []
    with pa.OSFile(str(place / "rows")) as file:
        while file.tell() < file.size():
            with pa.ipc.open_stream(file) as stream:
                batches += list(stream)
    session = WriterSession(where)
    with TaskAttempt(session, task, columns) as attempt:
        middle = len(batches) // 2
        for batch in batches[:middle]:
            attempt.add(batch)
        attempt.flush()
        before = attempt.written.appended
        wait_until(Faults(place.parent).committed(task.epoch).exists, MAX_WAIT_SECONDS)
        refused = False
        try:
            for batch in batches[middle:]:
                attempt.add(batch)
            attempt.flush()
        except EpochIsOver:
            refused = True
        outcome = {"before": before, "all": attempt.written.appended, "refused": refused}
    session.close()
    (place / "outcome.json").write_text(json.dumps(outcome))


if __name__ == "__main__":
    main(Path(sys.argv[1]))
