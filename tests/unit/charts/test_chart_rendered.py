"""The objects that Helm renders from the chart: rights, scope, hooks, values."""

from __future__ import annotations

import re
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from charts.generate import CHART
from tests.support.helm_chart import Object, Render, of_kind, template

_EVERYTHING = (
    "serviceMonitor.enabled=true",
    "alerts.enabled=true",
    "dashboard.enabled=true",
    "exampleCluster.enabled=true",
    "console.enabled=true",
    "console.cluster.name=log",
)
_TEXTS = re.compile(
    r"metadata|[nN]ame(space)?$|Names\[\]$|(secret|serviceAccount|priorityClass)Name$"
    r"|args\[\]|env\[\]\.value$|matchLabels"
)
"""The paths of fields whose values are texts."""
_CLUSTER_WIDE = ("ClusterRole", "ClusterRoleBinding", "CustomResourceDefinition")


def hooks(each: Object) -> str:
    return str(each["metadata"].get("annotations", {}).get("helm.sh/hook", ""))


def test_helm_lint_succeeds(helm: str) -> None:
    command = [helm, "lint", "--strict", "--kube-version", "1.33.0", str(CHART)]
    ran = subprocess.run(command, capture_output=True, text=True, check=False)
    assert ran.returncode == 0, ran.stdout


def test_default_values_install_only_the_required_kinds(render: Render) -> None:
    kinds = {each["kind"] for each in render() if not hooks(each)}
    assert kinds == {
        "ServiceAccount",
        "CustomResourceDefinition",
        "ClusterRole",
        "ClusterRoleBinding",
        "Role",
        "RoleBinding",
        "Service",
        "Deployment",
    }


def test_operator_of_one_namespace_has_no_rights_in_others(render: Render) -> None:
    objects = render("watchNamespace=there", "crds.install=false", *_EVERYTHING)
    assert [each for each in objects if each["kind"] in _CLUSTER_WIDE] == []
    assert {each["metadata"]["namespace"] for each in objects} == {"here", "there"}
    (role,) = (
        each
        for each in of_kind(objects, "Role")
        if each["metadata"]["namespace"] == "there" and not hooks(each)
    )
    assert role["rules"] == yaml.safe_load((CHART / "files" / "rules.yaml").read_text())
    monitors = {each["metadata"]["name"]: each for each in of_kind(objects, "ServiceMonitor")}
    assert monitors["mine-clusters"]["spec"]["namespaceSelector"] == {"matchNames": ["there"]}


def test_definitions_are_kept_and_equal_the_models(render: Render) -> None:
    made = of_kind(render(), "CustomResourceDefinition")
    assert len(made) == 2
    for each in made:
        name = each["metadata"]["name"]
        kept = yaml.safe_load((CHART / "files" / "crds" / f"{name}.yaml").read_text())
        assert each["spec"] == kept["spec"]
        assert each["metadata"]["annotations"] == {"helm.sh/resource-policy": "keep"}


def test_every_pod_has_the_least_privileges(render: Render) -> None:
    pods = []
    for each in render(*_EVERYTHING):
        spec = each.get("spec", {})
        pods += [spec] if each["kind"] == "Pod" else []
        pods += [spec["template"]["spec"]] if "template" in spec else []
    assert len(pods) == 4
    for pod in pods:
        assert pod["securityContext"]["runAsNonRoot"] is True
        assert pod["enableServiceLinks"] is False
        for container in pod["containers"]:
            security = container["securityContext"]
            assert security["readOnlyRootFilesystem"] is True
            assert security["allowPrivilegeEscalation"] is False
            assert security["capabilities"] == {"drop": ["ALL"]}


def test_finalizer_removal_exists_only_as_post_delete_hook(render: Render) -> None:
    after = [each for each in render() if hooks(each) == "post-delete"]
    kinds = ["ServiceAccount", "ClusterRole", "ClusterRoleBinding", "Job"]
    assert sorted(each["kind"] for each in after) == sorted(kinds)
    (job,) = of_kind(after, "Job")
    assert job["spec"]["activeDeadlineSeconds"] <= 60
    (role,) = of_kind(after, "ClusterRole")
    assert {verb for rule in role["rules"] for verb in rule["verbs"]} == {"list", "patch"}
    assert [each for each in render("releaseOnUninstall=false") if "delete" in hooks(each)] == []


@pytest.mark.parametrize("scope", [(), ("watchNamespace=there",)], ids=("everywhere", "there"))
def test_finalizer_removal_without_rbac_uses_rights_that_an_administrator_grants(
    render: Render, scope: tuple[str, ...]
) -> None:
    """The account of the values outlives the release; one that the release creates does not."""
    for values, created, used in (
        ((), ["mine-release"], "mine-release"),
        (("serviceAccount.create=false", "serviceAccount.name=theirs"), [], "theirs"),
    ):
        objects = render("rbac.create=false", *scope, *values)
        assert [each for each in objects if "Role" in each["kind"]] == []
        after = [each for each in objects if hooks(each) == "post-delete"]
        accounts = [each["metadata"]["name"] for each in of_kind(after, "ServiceAccount")]
        (job,) = of_kind(after, "Job")
        assert (accounts, job["spec"]["template"]["spec"]["serviceAccountName"]) == (created, used)


def test_alerts_and_dashboard_are_rendered_unchanged(render: Render) -> None:
    objects = render(*_EVERYTHING)
    (rule,) = of_kind(objects, "PrometheusRule")
    assert rule["spec"] == yaml.safe_load((CHART / "files" / "alerts.yaml").read_text())
    (dashboard,) = (each for each in of_kind(objects, "ConfigMap") if "waltz.json" in each["data"])
    assert (
        dashboard["data"]["waltz.json"] == (CHART / "files" / "dashboard.json").read_text().strip()
    )
    assert dashboard["metadata"]["labels"]["grafana_dashboard"] == "1"


def test_example_cluster_names_its_own_pools(render: Render) -> None:
    objects = render(*_EVERYTHING, "exampleCluster.name=first", "exampleCluster.servers=3")
    (cluster,) = of_kind(objects, "WaltzCluster")
    pools = [each["metadata"]["name"] for each in of_kind(objects, "StoragePool")]
    assert cluster["spec"]["pools"] == pools == ["first-a", "first-b", "first-c"]
    assert cluster["spec"]["servers"] == {"replicas": 3}
    for each in (cluster, *of_kind(objects, "StoragePool")):
        assert hooks(each) == "post-install,post-upgrade"


def test_example_cluster_is_in_the_namespace_that_the_operator_manages(render: Render) -> None:
    for more, expected in (((), "here"), (("watchNamespace=there",), "there")):
        objects = render("exampleCluster.enabled=true", *more)
        for each in (*of_kind(objects, "WaltzCluster"), *of_kind(objects, "StoragePool")):
            assert each["metadata"]["namespace"] == expected


def paths_of_other_types(value: Any, path: str = "") -> Iterator[str]:
    """Yield the paths below ``metadata`` and of names and arguments whose values are no texts."""
    if isinstance(value, dict):
        for key, each in value.items():
            yield from paths_of_other_types(each, f"{path}.{key}")
    elif isinstance(value, list):
        for each in value:
            yield from paths_of_other_types(each, f"{path}[]")
    elif not isinstance(value, str) and _TEXTS.search(path):
        yield f"{path}: {value!r}"


def test_names_that_yaml_reads_as_numbers_or_booleans_are_texts(render: Render) -> None:
    objects = render(
        *_EVERYTHING,
        "console.host=::",
        "crds.install=false",
        texts=(
            "watchNamespace=1",
            "priorityClassName=2",
            "serviceAccount.name=3",
            "console.cluster.name=true",
            "console.cluster.namespace=4",
            "console.cluster.tls.secretName=5",
            "console.cluster.zookeeperTls.secretName=6",
            "console.https.secretName=7",
            "console.priorityClassName=8",
            "exampleCluster.name=null",
        ),
        release="9",
        namespace="10",
    )
    wrong = [f"{each['kind']}{path}" for each in objects for path in paths_of_other_types(each)]
    assert wrong == []


@pytest.mark.parametrize(
    ("value", "message"),
    [
        ("replica=3", "replica"),
        ("watchNamespace=a.b", "watchNamespace"),
        ("exampleCluster.zookeeperMembers=2", "zookeeperMembers"),
        ("exampleCluster.volumeSize=10GB", "volumeSize"),
        ("serviceMonitor.interval=30", "interval"),
        ("image.tag=a b", "tag"),
        ("imagePullSecrets={registry}", "imagePullSecrets"),
        ("imagePullSecrets[0].secret=registry", "imagePullSecrets"),
        ("serviceAccount.name=Mine", "serviceAccount"),
        ("serviceAccount.annotations.a=1", "annotations"),
        ("podAnnotations.a=true", "podAnnotations"),
        ("nodeSelector.a=1", "nodeSelector"),
        ("resources.request.cpu=1", "request"),
        ("resources.requests.cpu=50 m", "requests"),
        ("resources.limits.memory=256MB", "limits"),
        ("tolerations[0].effects=NoSchedule", "tolerations"),
        ("tolerations[0].operator=Is", "tolerations"),
        ("affinity.nodesAffinity.a=b", "nodesAffinity"),
        ("priorityClassName=a b", "priorityClassName"),
        ("dashboard.labels.a=1", "labels"),
        ("console.networkPolicy.from[0].pods.a=b", "from"),
        ("exampleCluster.images.servers=a", "images"),
        ("exampleCluster.images.pullPolicy=Sometimes", "pullPolicy"),
    ],
)
def test_invalid_value_is_refused(helm: str, value: str, message: str) -> None:
    ran = template(helm, value)
    assert ran.returncode != 0
    assert message in ran.stderr


def test_values_as_kubernetes_writes_them_are_accepted(render: Render) -> None:
    objects = render(
        "image.tag=1.0@sha256:" + 64 * "a",
        "imagePullSecrets[0].name=registry",
        "resources.requests.cpu=1",
        "resources.limits.memory=1.5Gi",
        "tolerations[0].key=dedicated",
        "tolerations[0].effect=NoSchedule",
        "affinity.nodeAffinity.preferredDuringSchedulingIgnoredDuringExecution[0].weight=1",
        "nodeSelector.disk=fast",
        "exampleCluster.images.pullSecrets={registry}",
    )
    (deployment,) = of_kind(objects, "Deployment")
    assert deployment["spec"]["template"]["spec"]["nodeSelector"] == {"disk": "fast"}


def test_notes_name_the_next_commands() -> None:
    notes = (Path(CHART) / "templates" / "NOTES.txt").read_text()
    for command in ("kubectl get waltzclusters,storagepools", "helm test", "kubectl explain"):
        assert command in notes
