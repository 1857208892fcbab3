"""Define the fixtures: the cluster that most tests share, namespaces and witnesses.

The shared cluster is installed by the commands of the README. Tests that use it run one after the
other. With several workers (``-n``), tests in namespaces of their own run beside them, but no test
runs beside one that is marked ``alone``. Tests with the fixture ``own_operator`` run beside each
other while the shared operator is stopped.
"""

from __future__ import annotations

import os
import time
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

import pytest
from xdist.remote import Producer

from e2e import installing, resources
from e2e.killing import start_killed_operators
from e2e.kubectl import CommandFailed, Kubectl
from e2e.operators import Operator
from e2e.waiting import OPERATORS_ARE_KILLED, PATIENCE, until
from e2e.witnessing import Witness
from tests.support.scheduling import Groups

_TEST_SECONDS = 900
_READY_SECONDS = 300.0
_DELETION_SECONDS = 180.0
_LOCK_SECONDS = 1800.0
"""How long a session waits for the end of another one."""

KEEP = "WALTZ_E2E_KEEP"
"""The variable that is 1 if the shared cluster is kept after a session."""

LOGS = Kubectl("logs")
"""The namespace of the shared cluster. The name of the cluster is ``log``."""

_LOCK = "waltz-e2e"
"""The ConfigMap in the namespace ``default`` that exists while a session runs."""
_DEFAULT = Kubectl("default")

_ON_SHARED_CLUSTER = (
    "test_console",
    "test_first_start",
    "test_operator_upgrade",
    "test_prometheus",
    "test_rolling_changes",
    "test_spread",
    "test_steady_state",
    "test_zookeeper_members",
)
"""Files whose tests use or change the shared cluster."""
_WITHOUT_COMMON_FIXTURES = ("test_operator_killed",)
"""Files whose tests take long and have nothing in common: workers may run them side by side."""


def _is_worker() -> bool:
    """Whether this process is a worker of pytest-xdist, whose main process holds the lock."""
    return "PYTEST_XDIST_WORKER" in os.environ


def pytest_sessionstart(session: pytest.Session) -> None:
    """Lock the Kubernetes cluster, because two sessions of these tests would disturb each other."""
    if session.config.option.collectonly or _is_worker():
        return

    def take_lock() -> bool:
        try:
            _DEFAULT("create", "configmap", _LOCK, f"--from-literal=by={os.getpid()}")
        except CommandFailed as failed:
            if "already exists" not in str(failed):
                raise
            return False
        return True

    description = (
        "the lock of these tests is free; another session of these tests runs, or was killed: if "
        f"none runs, kubectl delete configmap -n default {_LOCK}"
    )
    until(take_lock, _LOCK_SECONDS, description)


def pytest_sessionfinish(session: pytest.Session) -> None:
    """Release the lock, if this process holds it."""
    if session.config.option.collectonly or _is_worker():
        return
    by = _DEFAULT("get", "configmap", _LOCK, "--ignore-not-found", "-o", "jsonpath={.data.by}")
    if by == str(os.getpid()):
        _DEFAULT.delete("configmap", _LOCK)


# Runs before pytest selects tests by their markers.
@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Set the timeout of tests on a real cluster; mark those with an operator of their own."""
    for item in items:
        item.add_marker(pytest.mark.timeout(_TEST_SECONDS * PATIENCE))
        if "own_operator" in getattr(item, "fixturenames", ()):
            item.add_marker(pytest.mark.own_operator)


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Producer) -> Groups:
    """Run the tests of each group (`_group`) on one worker, one after the other."""
    return Groups(config, log, _group)


def _group(nodeid: str) -> str:
    """Return the group of a test: usually its file; one group has all with the shared cluster."""
    name = nodeid.partition(".py::")[0].removeprefix("e2e/")
    if name in _WITHOUT_COMMON_FIXTURES:
        return nodeid
    return "shared cluster" if name in _ON_SHARED_CLUSTER else name


@dataclass(frozen=True, slots=True)
class FirstStart:
    """The shared cluster, and the seconds from ``helm install`` until it was Ready.

    ``seconds`` is 0 if an earlier session has kept the cluster.
    """

    kubectl: Kubectl
    seconds: float


def _keeps_cluster() -> bool:
    """Whether the shared cluster is kept after this session, so that the next session uses it.

    A worker of pytest-xdist always keeps it, because tests of other workers may still run.
    """
    return _is_worker() or os.environ.get(KEEP) == "1"


@contextmanager
def _new_namespace() -> Iterator[Kubectl]:
    """Create a namespace with a unique name; delete it afterwards without waiting."""
    kubectl = Kubectl(f"e2e-{uuid.uuid4().hex[:6]}")
    kubectl.create_namespace()
    yield kubectl
    kubectl.delete_namespace(wait=False)


@pytest.fixture(scope="session")
def images() -> None:
    """Load the images into the nodes."""
    if not _is_worker():
        installing.load_images()


@pytest.fixture(scope="session")
def first_start(images: None) -> Iterator[FirstStart]:
    """Install and start the shared cluster by the README's commands, unless it has been kept."""
    seconds = 0.0
    if LOGS.get("namespace", LOGS.namespace) is None:
        started = time.monotonic()
        installing.install()
        if OPERATORS_ARE_KILLED:
            installing.OPERATOR("scale", f"deployment/{installing.RELEASE}", "--replicas=0")
            start_killed_operators(installing.OPERATOR)
        LOGS.create_namespace()
        LOGS.apply_file(resources.EXAMPLE)
        LOGS.await_condition("waltzcluster/log", "Ready", _READY_SECONDS)
        seconds = time.monotonic() - started
    yield FirstStart(LOGS, seconds)
    if not _keeps_cluster():
        remove_shared_cluster()


def remove_shared_cluster() -> None:
    """Delete the shared cluster, and then the operator, without which no deletion completes."""
    LOGS.delete_namespace()
    installing.await_deleted_namespaces(_DELETION_SECONDS)
    installing.uninstall()


@pytest.fixture(scope="session")
def operator(first_start: FirstStart) -> Operator:
    """The operator that manages all namespaces."""
    return Operator(installing.OPERATOR)


@pytest.fixture(scope="session")
def log(first_start: FirstStart) -> Kubectl:
    """The shared cluster's namespace."""
    return first_start.kubectl


@pytest.fixture
def namespace(operator: Operator) -> Iterator[Kubectl]:
    """A new namespace for one test."""
    with _new_namespace() as kubectl:
        yield kubectl


@pytest.fixture
def own_operator(operator: Operator, namespace: Kubectl) -> Iterator[Operator]:
    """An operator that watches only the test's namespace, while the shared operator is stopped.

    ``python -m e2e`` stops the shared operator for all such tests, so that they run side by side.
    If the shared operator still runs, this fixture stops it, and starts it again after the test.
    """
    was_stopped = operator.is_stopped()
    if not was_stopped:
        operator.stop()
    installing.install_in(namespace)
    yield Operator(namespace)
    installing.uninstall_from(namespace)
    if not was_stopped:
        operator.start()


@pytest.fixture(scope="module")
def module_namespace(operator: Operator) -> Iterator[Kubectl]:
    """A new namespace for all tests of one module."""
    with _new_namespace() as kubectl:
        yield kubectl


@pytest.fixture(scope="module")
def module_witness(log: Kubectl) -> Iterator[Witness]:
    """A witness that runs on the shared cluster during all tests of a module."""
    witness = Witness(log)
    witness.start("log")
    yield witness
    witness.finish()


@pytest.fixture
def witness(module_witness: Witness, log: Kubectl) -> Iterator[Witness]:
    """A running witness. After the test, appends must succeed and the cluster must be Healthy."""
    yield module_witness
    module_witness.await_progress(60)
    log.await_condition("waltzcluster/log", "Healthy", 120)
