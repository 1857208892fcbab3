"""What a start does with the ``cluster.json`` that a supervisor left when it died."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from tests.support.local_directories import started, write_description
from waltz.local import (
    ClusterLayout,
    ClusterRunning,
    LocalCluster,
    PlanError,
    Shape,
    end_left_over,
)


def interrupt(_: str) -> None:
    """End a start before its first process."""
    raise asyncio.CancelledError


async def test_start_beside_left_over_processes_is_refused_and_keeps_their_ids(
    tmp_path: Path,
) -> None:
    layout = ClusterLayout(tmp_path)
    cluster = LocalCluster(tmp_path, on_progress=interrupt)
    with started(str(layout.config("storage/0"))) as storage:
        write_description(layout, {"storage/0": storage.pid}, None)
        with pytest.raises(ClusterRunning) as refused:
            await cluster.start()
        assert str(refused.value) == (
            f"the supervisor of the cluster in {tmp_path} has ended, but these processes still "
            f"run: storage/0; end them with: waltz local down --dir {tmp_path}"
        )
        assert storage.poll() is None
        storage.kill()
        storage.wait()
    assert end_left_over(tmp_path) == {}
    # The refused start has unlocked the directory.
    with pytest.raises(asyncio.CancelledError):
        await cluster.start()


async def test_failed_start_keeps_the_description_of_another_supervisor(tmp_path: Path) -> None:
    layout = ClusterLayout(tmp_path)
    layout.plan.write_text("{")
    write_description(layout, {}, None)
    with pytest.raises(PlanError):
        await LocalCluster(tmp_path, Shape(partitions=2), on_progress=interrupt).start()
    assert layout.description.exists()
