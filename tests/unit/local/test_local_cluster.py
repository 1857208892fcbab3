"""The start of a local cluster that is interrupted leaves the directory to the next start."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from waltz.local.cluster import LocalCluster


async def test_interrupted_start_stops_the_cluster_and_unlocks_its_directory(
    tmp_path: Path,
) -> None:
    def interrupt(_: str) -> None:
        """Do what Ctrl-C does at the first await of a start."""
        raise asyncio.CancelledError

    clusters = [LocalCluster(tmp_path / "cluster", on_progress=interrupt) for _ in range(2)]
    for cluster in clusters:
        with pytest.raises(asyncio.CancelledError):
            await cluster.start()
