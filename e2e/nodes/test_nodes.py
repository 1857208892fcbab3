"""Test that a drained node takes only one copy away, and that a dead node loses no append.

The witness (`e2e.witness`) runs on a node that is neither drained nor stopped. It appends and reads
all the time, and checks the whole log at the end.
"""

from __future__ import annotations

import os
import shlex
from collections.abc import Iterator
from dataclasses import dataclass

import pytest

from e2e.kubectl import CommandFailed, Kubectl, run, staying_node
from e2e.nodes import NODE_COMMAND
from e2e.waiting import until
from e2e.witnessing import Witness

_DRAIN_SECONDS = 300
_REFUSED_SECONDS = 20
_PAUSE_SECONDS = 120.0
"""How long appends may pause.

A dead node closes no connection. So sessions and requests must time out first.
"""
_NOTICED_SECONDS = 120.0
_HEALTHY_SECONDS = 300.0


@dataclass(frozen=True, slots=True)
class Nodes:
    """The node of the witness, and two others; each has one storage of the cluster."""

    home: str
    first: str
    second: str


def storage_nodes(log: Kubectl) -> dict[str, str]:
    """Return the node of each storage, by the name of its pod."""
    return {
        pod["metadata"]["name"]: pod["spec"]["nodeName"]
        for pod in log.find("pod", "waltz.dev/cluster=log,waltz.dev/component=storage")
        if pod["spec"].get("nodeName")
    }


def condition(log: Kubectl, kind: str, name: str, condition_type: str) -> str:
    """Return the status of a condition of an object: True, False or Unknown."""
    live = log.get(kind, name)
    assert live is not None, f"{kind} {name} does not exist"
    statuses = {each["type"]: str(each["status"]) for each in live["status"]["conditions"]}
    return statuses[condition_type]


def drain(node: str, seconds: float) -> None:
    """Evict the pods of a node. Raises CommandFailed if that is not possible in time."""
    options = ("--ignore-daemonsets", "--delete-emptydir-data", f"--timeout={seconds:g}s")
    run("kubectl", "drain", node, *options, seconds=seconds + 60)


@pytest.fixture(scope="module")
def nodes(log: Kubectl) -> Nodes:
    """The nodes of the tests, once the cluster is Healthy; each must have a storage."""
    log.await_condition("waltzcluster/log", "Healthy", _HEALTHY_SECONDS)
    home, used = staying_node(), set(storage_nodes(log).values())
    assert home in used, f"no storage is on {home}: {storage_nodes(log)}"
    assert len(used) >= 3, f"the storages share nodes: {storage_nodes(log)}"
    first, second, *_ = sorted(used - {home})
    return Nodes(home, first, second)


@pytest.fixture(scope="module")
def appending(log: Kubectl, nodes: Nodes) -> Iterator[Witness]:
    """A witness that runs during all tests."""
    witness = Witness(log)
    witness.start("log", node=nodes.home)
    yield witness
    witness.finish()


def test_drain_takes_one_copy_away_and_a_second_drain_waits(
    log: Kubectl, nodes: Nodes, appending: Witness
) -> None:
    (kept,) = (pod for pod, node in storage_nodes(log).items() if node == nodes.second)
    try:
        drain(nodes.first, _DRAIN_SECONDS)
        appending.await_progress(_PAUSE_SECONDS)
        with pytest.raises(CommandFailed, match=f"(?s)pod.*{kept}"):
            drain(nodes.second, _REFUSED_SECONDS)
        assert condition(log, "pod", kept, "Ready") == "True"
        appending.await_progress(_PAUSE_SECONDS)
    finally:
        run("kubectl", "uncordon", nodes.first, nodes.second)
    log.await_condition("waltzcluster/log", "Healthy", _HEALTHY_SECONDS)
    appending.await_progress(_PAUSE_SECONDS)


def test_dead_node_comes_back_and_no_append_is_lost(
    log: Kubectl, nodes: Nodes, appending: Witness
) -> None:
    command = shlex.split(os.environ[NODE_COMMAND])
    storages = storage_nodes(log)
    volumes = log.find("persistentvolumeclaim")
    run(*command, "stop", nodes.second)
    try:
        appending.await_progress(_PAUSE_SECONDS)
        until(
            lambda: condition(log, "waltzcluster", "log", "Healthy") != "True",
            _NOTICED_SECONDS,
            "the operator notices the dead node",
            show=log.describe,
        )
        appending.await_progress(_PAUSE_SECONDS)
    finally:
        run(*command, "start", nodes.second, seconds=180)
    log.await_condition("waltzcluster/log", "Healthy", _HEALTHY_SECONDS)
    appending.await_progress(_PAUSE_SECONDS)
    assert storage_nodes(log) == storages
    assert {each["metadata"]["uid"] for each in log.find("persistentvolumeclaim")} == {
        each["metadata"]["uid"] for each in volumes
    }
