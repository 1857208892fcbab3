"""Errors of the tasks that follow the metadata: which ones end the process of a server at once."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[3]

_PROGRAM = """
import asyncio
from unittest.mock import AsyncMock, Mock
from tests.unit.server.test_server_node_lifecycle import Scene
from waltz.metadata.cluster import NoCluster
from waltz.runtime.process import run_loop, set_up_logging
from waltz_server.main import run_node

async def main():
    scene = Scene()
    await scene.create_cluster()
    node, stop = scene.node, scene.node.stop
    async def stop_in_good_order():
        print("stopped in good order", flush=True)
        await stop()
    node.stop = stop_in_good_order
    node.{method} = {mock}(side_effect={error})
    await asyncio.wait_for(run_node(node, asyncio.Event()), 30)

set_up_logging(verbose=False)
run_loop(main())
"""


def run(method: str, error: str) -> subprocess.CompletedProcess[str]:
    """Run the process of a server in which ``method`` of the node raises ``error``."""
    mock = "Mock" if method == "_set_owned" else "AsyncMock"
    program = _PROGRAM.format(method=method, mock=mock, error=error)
    return subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, timeout=60, cwd=ROOT
    )


METHODS = ["_set_owned", "_follow_assignments", "_follow_access_rules"]


@pytest.mark.parametrize("method", METHODS)
def test_broken_invariant_in_a_task_of_the_metadata_ends_the_process_at_once(method: str) -> None:
    """The process left the cluster and finished appends of the partition that was wrong."""
    ended = run(method, "AssertionError('the log has a gap')")
    assert ended.returncode == 70, ended.stderr
    assert "CRITICAL" in ended.stderr
    assert "the log has a gap" in ended.stderr
    assert ended.stdout == ""


@pytest.mark.parametrize("method", METHODS)
def test_lost_metadata_end_the_process_in_good_order(method: str) -> None:
    ended = run(method, "NoCluster('no cluster')")
    assert ended.returncode == 1
    assert "CRITICAL" not in ended.stderr
    assert "NoCluster: no cluster" in ended.stderr
    assert ended.stdout == "stopped in good order\n"
