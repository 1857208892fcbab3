"""Test the chart: upgrade of the definitions, an operator of one namespace, and uninstall."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml

from e2e import installing, resources
from e2e.kubectl import CommandFailed, Kubectl, run
from e2e.operators import Operator
from e2e.witnessing import Witness

pytestmark = pytest.mark.alone

_READY_SECONDS = 150.0
_UNINSTALLED_SECONDS = 60.0
_DELETED_SECONDS = 60.0
_APART = Kubectl("apart")
_ELSEWHERE = Kubectl("elsewhere")
_ACCOUNT = "system:serviceaccount:apart:apart"


def helm(*arguments: str, seconds: float = 120.0) -> str:
    return run("helm", *arguments, seconds=seconds)


def test_helm_test_succeeds(operator: Operator) -> None:
    printed = helm("test", installing.RELEASE, "-n", operator.kubectl.namespace)
    assert "Succeeded" in printed


def test_helm_upgrade_upgrades_the_definitions(operator: Operator, tmp_path: Path) -> None:
    older = tmp_path / "waltz"
    shutil.copytree(resources.CHART, older)
    name = "storagepools.waltz.dev"
    file = older / "files" / "crds" / f"{name}.yaml"
    definition = yaml.safe_load(file.read_text())
    definition["spec"]["names"]["shortNames"] = ["older"]
    file.write_text(yaml.safe_dump(definition))
    arguments = ("-n", operator.kubectl.namespace, "--reuse-values")

    def short_names() -> str:
        return run("kubectl", "get", "crd", name, "-o", "jsonpath={.spec.names.shortNames}")

    helm("upgrade", installing.RELEASE, str(older), *arguments)
    assert short_names() == '["older"]'
    helm("upgrade", installing.RELEASE, str(resources.CHART), *arguments)
    assert short_names() == '["sp"]'


@pytest.fixture(scope="module")
def no_shared_operator(operator: Operator) -> Iterator[None]:
    """Scale the operator of all namespaces to zero: two operators must not manage one cluster."""
    operator.stop()
    yield
    operator.start()


@pytest.fixture
def example(no_shared_operator: None) -> Iterator[Kubectl]:
    """A namespace for the example cluster, which no operator reconciles."""
    made = Kubectl("example")
    made.create_namespace()
    yield made
    helm("uninstall", "example", "-n", made.namespace, "--no-hooks", "--ignore-not-found")
    made.delete_namespace()


def test_example_cluster_is_created_once_and_survives_upgrade_and_uninstall(
    example: Kubectl,
) -> None:
    values = "exampleCluster.enabled=true,crds.install=false,watchNamespace=example,replicas=0"
    install = ("upgrade", "--install", "example", str(resources.CHART), "-n", example.namespace)

    def existing_uids() -> dict[str, str]:
        found = [*example.find("waltzcluster"), *example.find("storagepool")]
        return {each["metadata"]["name"]: each["metadata"]["uid"] for each in found}

    helm(*install, "--set", values)
    first = existing_uids()
    assert set(first) == {"log", "log-a", "log-b", "log-c"}
    helm(*install, "--set", values)
    helm("uninstall", "example", "-n", example.namespace, "--no-hooks")
    helm(*install, "--set", values)
    assert existing_uids() == first

    example.delete("storagepool", "log-b")
    helm(*install, "--set", values)
    again = existing_uids()
    assert again.pop("log-b") != first.pop("log-b")
    assert again == first


@pytest.fixture(scope="module")
def apart(no_shared_operator: None) -> Iterator[Kubectl]:
    """A namespace with its own operator, which does not watch the namespace ``elsewhere``."""
    for each in (_APART, _ELSEWHERE):
        each.create_namespace()
        each.apply(resources.pool("p"), resources.cluster("small", ["p"]))
    values = "watchNamespace=apart,crds.install=false,replicas=1"
    helm("install", "apart", str(resources.CHART), "-n", "apart", "--set", values)
    yield _APART
    helm("uninstall", "apart", "-n", "apart", "--ignore-not-found")
    for each in (_APART, _ELSEWHERE):
        each.delete_namespace()


def test_operator_of_one_namespace_starts_a_cluster(apart: Kubectl) -> None:
    apart.await_condition("waltzcluster/small", "Ready", _READY_SECONDS)
    logs = apart("logs", "deployment/apart")
    assert "forbidden" not in logs.lower()


@pytest.mark.parametrize(
    "resource", ["secrets", "pods", "statefulsets.apps", "waltzclusters.waltz.dev"]
)
def test_operator_of_one_namespace_has_no_rights_in_other_namespaces(
    apart: Kubectl, resource: str
) -> None:
    def operator_may_list(namespace: Kubectl) -> bool:
        try:
            answer = namespace("auth", "can-i", "list", resource, f"--as={_ACCOUNT}")
        except CommandFailed:
            return False
        return answer.strip() == "yes"

    assert operator_may_list(apart)
    assert not operator_may_list(_ELSEWHERE)


def test_operator_of_one_namespace_changes_nothing_in_other_namespaces(apart: Kubectl) -> None:
    cluster = _ELSEWHERE.get("waltzcluster", "small")
    assert cluster is not None
    assert "finalizers" not in cluster["metadata"]
    assert "status" not in cluster
    assert _ELSEWHERE.find("pod") == []


def test_log_takes_appends_after_the_operator_is_uninstalled(apart: Kubectl) -> None:
    witness = Witness(apart)
    witness.start("small")
    helm("uninstall", "apart", "-n", "apart", seconds=_UNINSTALLED_SECONDS)
    for kind, name in (("waltzcluster", "small"), ("storagepool", "p")):
        found = apart.get(kind, name)
        assert found is not None
        assert "finalizers" not in found["metadata"]
    witness.await_progress(30)
    witness.finish()


def test_namespace_with_a_cluster_can_be_deleted_after_uninstall(apart: Kubectl) -> None:
    apart.delete_namespace(_DELETED_SECONDS)
    # The fixture ``apart`` deletes it at the end.
    apart.create_namespace()
