"""Define a sink whose tasks, executors and driver are killed as `faults` has planned."""

from __future__ import annotations

import os
import pickle
import random
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import suppress
from functools import partial
from typing import Any

import pyarrow as pa
from pyspark import TaskContext
from pyspark.sql.datasource import DataSourceStreamWriter, WriterCommitMessage

import waltz.spark.writer
from tests.spark.faults import Fault, Faults, kill_executor
from waltz.spark.cluster_location import locate
from waltz.spark.core.rows import columns_of
from waltz.spark.core.write_options import parse_write_options
from waltz.spark.sink import WaltzStreamWriter
from waltz.spark.source import WaltzDataSource

BATCH_ROWS = 20
"""Appends of a task go into batches of so many, so that there is a middle."""

_SHARE = 0.6
"""Of the attempts at tasks: so many are hit."""
_LATEST_SECONDS = 0.2
"""An attempt takes about so long."""
_GIVEN_UP_SECONDS = 10


class SabotagedWriter(WaltzStreamWriter):
    """Writes as `WaltzStreamWriter` does, until a planned fault stops it."""

    def write(self, iterator: Iterator[Any]) -> WriterCommitMessage:
        waltz.spark.writer._BATCH_ROWS = BATCH_ROWS
        context = TaskContext.get()
        assert context is not None
        task = self.task()
        chance = random.Random(f"{task.run} {task.epoch} {task.task} {context.attemptNumber()}")
        if chance.random() > _SHARE:
            return super().write(iterator)
        faults = Faults.of_this_process()
        claimed = faults.claim(Fault.TASK, Fault.EXECUTOR, Fault.DRIVER, Fault.ZOMBIE)
        if claimed is None:
            return super().write(iterator)
        number, fault = claimed
        if fault is Fault.ZOMBIE:
            return self._given_up(number, iterator)
        deed = _DEEDS[fault]
        if chance.random() < 0.3:
            message = super().write(iterator)
            deed(faults)
            return message
        threading.Timer(chance.uniform(0, _LATEST_SECONDS), partial(deed, faults)).start()
        return super().write(iterator)

    def commit(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:  # noqa: N803
        faults = Faults.of_this_process()
        if faults.claim(Fault.COMMIT):
            faults.kill_driver()
        faults.committed(batchId).touch()

    def _given_up(self, number: int, batches: Iterator[Any]) -> WriterCommitMessage:
        """Write in a separate process, which Spark cannot kill when it abandons this task."""
        place = Faults.of_this_process().directory / f"zombie-{number}"
        place.mkdir()
        read = list(batches)
        with pa.OSFile(str(place / "rows"), "wb") as file:
            for batch in read:
                with pa.ipc.new_stream(file, batch.schema) as stream:
                    stream.write_batch(batch)
        (place / "order").write_bytes(pickle.dumps((self._location, self.task(), self._columns)))
        command = [sys.executable, "-m", "tests.spark.zombie", str(place)]
        with (place / "log").open("wb") as log:
            zombie = subprocess.Popen(
                command, stdin=subprocess.DEVNULL, stdout=log, stderr=log, start_new_session=True
            )
        (place / "pid").write_text(str(zombie.pid))
        # Spark starts a second copy of a task and abandons the first, but only once for each task.
        with suppress(subprocess.TimeoutExpired):
            zombie.wait(_GIVEN_UP_SECONDS)
        raise RuntimeError("this attempt is given up")


class SabotagedSource(WaltzDataSource):
    """The format ``sabotaged``."""

    @classmethod
    def name(cls) -> str:
        return "sabotaged"

    def streamWriter(self, schema: Any, overwrite: bool) -> DataSourceStreamWriter:  # noqa: N802
        options = parse_write_options(self.options)
        return SabotagedWriter(locate(options.cluster), options, columns_of(schema))


def _kill_task(_faults: Faults) -> None:
    os.kill(os.getpid(), signal.SIGKILL)


def _kill_executor(_faults: Faults) -> None:
    kill_executor()


_DEEDS: dict[Fault, Callable[[Faults], None]] = {
    Fault.TASK: _kill_task,
    Fault.EXECUTOR: _kill_executor,
    Fault.DRIVER: Faults.kill_driver,
}
