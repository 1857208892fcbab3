"""The cluster that most tests share: the README's, installed as the README says."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from dataclasses import dataclass

import pytest

from e2e import installing, resources
from e2e.kubectl import CommandFailed, Kubectl
from e2e.operators import Operator
from e2e.waiting import until
from e2e.witnessing import Witness

_TEST_SECONDS = 420
_READY_SECONDS = 300.0
_END_SECONDS = 180.0
_TURN_SECONDS = 1800.0

LOGS = Kubectl("logs")
"""Where the shared cluster, called ``log``, is."""


_TURN = "waltz-e2e"
_DEFAULT = Kubectl("default")


def pytest_sessionstart() -> None:
    """Wait until nobody else runs these tests on this cluster: they would disturb each other."""

    def taken() -> bool:
        try:
            _DEFAULT("create", "configmap", _TURN, f"--from-literal=by={os.getpid()}")
        except CommandFailed as failed:
            if "already exists" not in str(failed):
                raise
            return False
        return True

    hint = f"somebody runs these tests, or was killed: kubectl delete configmap -n default {_TURN}"
    until(taken, _TURN_SECONDS, hint)


def pytest_sessionfinish() -> None:
    """Let others have their turn."""
    by = _DEFAULT("get", "configmap", _TURN, "--ignore-not-found", "-o", "jsonpath={.data.by}")
    if by == str(os.getpid()):
        _DEFAULT.delete("configmap", _TURN)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Give tests on a real cluster their time."""
    for item in items:
        item.add_marker(pytest.mark.timeout(_TEST_SECONDS))


@dataclass(frozen=True, slots=True)
class FirstStart:
    """The shared cluster, and how many seconds its way to Ready took from ``helm install`` on."""

    kubectl: Kubectl
    seconds: float


def _keeps() -> bool:
    """Whether what was made stays for the next run, and what an earlier one has left is used."""
    return os.environ.get("WALTZ_E2E_KEEP") == "1"


@pytest.fixture(scope="session")
def images() -> None:
    """The nodes have the images."""
    installing.load_images()


@pytest.fixture(scope="session")
def first_start(images: None) -> Iterator[FirstStart]:
    """The README's commands, from nothing to Ready."""
    if _keeps() and LOGS.get("namespace", LOGS.namespace) is not None:
        yield FirstStart(LOGS, 0.0)
        return
    begun = time.monotonic()
    installing.install()
    LOGS.create_namespace()
    LOGS.apply_file(resources.EXAMPLE)
    LOGS.await_condition("waltzcluster/log", "Ready", _READY_SECONDS)
    yield FirstStart(LOGS, time.monotonic() - begun)
    if not _keeps():
        LOGS.delete_namespace()
        installing.await_ends(_END_SECONDS)
        installing.uninstall()


@pytest.fixture(scope="session")
def operator(first_start: FirstStart) -> Operator:
    """The operator; it looks after the clusters of all namespaces."""
    return Operator(installing.OPERATOR)


@pytest.fixture(scope="session")
def log(first_start: FirstStart) -> Kubectl:
    """The shared cluster's namespace."""
    return first_start.kubectl


@pytest.fixture(scope="module")
def module_witness(log: Kubectl) -> Iterator[Witness]:
    """A witness who is there during all tests of a module."""
    witness = Witness(log)
    witness.begin("log")
    yield witness
    witness.end()


@pytest.fixture
def witness(module_witness: Witness, log: Kubectl) -> Iterator[Witness]:
    """A witness of this test: afterwards the log goes on, and the cluster is well again."""
    yield module_witness
    module_witness.await_progress(60)
    log.await_condition("waltzcluster/log", "Healthy", 120)
