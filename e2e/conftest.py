"""Fixtures: the cluster that most tests share, installed as the README says, and namespaces."""

from __future__ import annotations

import os
import time
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

import pytest

from e2e import installing, resources
from e2e.kubectl import CommandFailed, Kubectl
from e2e.operators import Operator
from e2e.waiting import until
from e2e.witnessing import Witness

_TEST_SECONDS = 900
_READY_SECONDS = 300.0
_DELETION_SECONDS = 180.0
_LOCK_SECONDS = 1800.0

LOGS = Kubectl("logs")
"""The namespace of the shared cluster, which is named ``log``."""

_LOCK = "waltz-e2e"
_DEFAULT = Kubectl("default")


def pytest_sessionstart(session: pytest.Session) -> None:
    """Lock the Kubernetes cluster: two sessions of these tests would disturb each other."""
    if session.config.option.collectonly:
        return

    def locked() -> bool:
        try:
            _DEFAULT("create", "configmap", _LOCK, f"--from-literal=by={os.getpid()}")
        except CommandFailed as failed:
            if "already exists" not in str(failed):
                raise
            return False
        return True

    remedy = (
        "the lock of these tests is free; another session runs, or one was killed: in that case "
        f"kubectl delete configmap -n default {_LOCK}"
    )
    until(locked, _LOCK_SECONDS, remedy)


def pytest_sessionfinish(session: pytest.Session) -> None:
    """Release the lock."""
    if session.config.option.collectonly:
        return
    by = _DEFAULT("get", "configmap", _LOCK, "--ignore-not-found", "-o", "jsonpath={.data.by}")
    if by == str(os.getpid()):
        _DEFAULT.delete("configmap", _LOCK)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Set the timeout of tests on a real cluster."""
    for item in items:
        item.add_marker(pytest.mark.timeout(_TEST_SECONDS))


@dataclass(frozen=True, slots=True)
class FirstStart:
    """The shared cluster, and the seconds from ``helm install`` until it was Ready."""

    kubectl: Kubectl
    seconds: float


def _keeps() -> bool:
    """Whether the shared cluster stays for the next session, which then uses it."""
    return os.environ.get("WALTZ_E2E_KEEP") == "1"


@contextmanager
def _new_namespace() -> Iterator[Kubectl]:
    """Create a namespace with a unique name; delete it afterwards without waiting."""
    made = Kubectl(f"e2e-{uuid.uuid4().hex[:6]}")
    made.create_namespace()
    yield made
    made.delete_namespace(wait=False)


@pytest.fixture(scope="session")
def images() -> None:
    """Load the images into the nodes."""
    installing.load_images()


@pytest.fixture(scope="session")
def first_start(images: None) -> Iterator[FirstStart]:
    """Install and start the shared cluster by the README's commands."""
    if _keeps() and LOGS.get("namespace", LOGS.namespace) is not None:
        yield FirstStart(LOGS, 0.0)
        return
    started = time.monotonic()
    installing.install()
    LOGS.create_namespace()
    LOGS.apply_file(resources.EXAMPLE)
    LOGS.await_condition("waltzcluster/log", "Ready", _READY_SECONDS)
    yield FirstStart(LOGS, time.monotonic() - started)
    if not _keeps():
        LOGS.delete_namespace()
        installing.await_deleted_namespaces(_DELETION_SECONDS)
        installing.uninstall()


@pytest.fixture(scope="session")
def operator(first_start: FirstStart) -> Operator:
    """The operator of all namespaces."""
    return Operator(installing.OPERATOR)


@pytest.fixture(scope="session")
def log(first_start: FirstStart) -> Kubectl:
    """The shared cluster's namespace."""
    return first_start.kubectl


@pytest.fixture
def namespace(operator: Operator) -> Iterator[Kubectl]:
    """A namespace of one test."""
    with _new_namespace() as made:
        yield made


@pytest.fixture(scope="module")
def module_namespace(operator: Operator) -> Iterator[Kubectl]:
    """A namespace of all tests of one module."""
    with _new_namespace() as made:
        yield made


@pytest.fixture(scope="module")
def module_witness(log: Kubectl) -> Iterator[Witness]:
    """A witness of the shared cluster that runs during all tests of a module."""
    witness = Witness(log)
    witness.start("log")
    yield witness
    witness.finish()


@pytest.fixture
def witness(module_witness: Witness, log: Kubectl) -> Iterator[Witness]:
    """A witness during one test. After the test appends succeed and the cluster is Healthy."""
    yield module_witness
    module_witness.await_progress(60)
    log.await_condition("waltzcluster/log", "Healthy", 120)
