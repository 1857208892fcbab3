"""The console's objects in the chart: cluster, TLS, access to the page, refused values."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import typer.main
import yaml

from tests.support.helm_chart import Object, Render, of_kind, template
from waltz.cli.app import app
from waltz.cli.settings import CliSettings, read_cli_settings

ON = ("console.enabled=true", "console.cluster.name=log")


def the(objects: list[Object], kind: str) -> Object:
    """Return the console's object of a kind."""
    found: Object
    (found,) = (
        each for each in of_kind(objects, kind) if each["metadata"]["name"] == "mine-console"
    )
    return found


def pod(objects: list[Object]) -> dict[str, Any]:
    spec: dict[str, Any] = the(objects, "Deployment")["spec"]["template"]["spec"]
    return spec


def container(objects: list[Object]) -> dict[str, Any]:
    found: dict[str, Any]
    (found,) = pod(objects)["containers"]
    return found


def settings(objects: list[Object], folder: Path) -> CliSettings:
    """Return the settings in the rendered ConfigMap as the command reads them."""
    file = folder / "cluster.yaml"
    file.write_text(the(objects, "ConfigMap")["data"]["cluster.yaml"])
    return read_cli_settings(file, {})


def options(objects: list[Object]) -> dict[str, Any]:
    """Return the options of the rendered command line as ``waltz console`` reads them."""
    used = container(objects)
    assert used["command"] == ["waltz", "console"]
    verb = typer.main.get_command(app).commands["console"]  # type: ignore[attr-defined]
    parsed: dict[str, Any] = verb.make_context("console", list(used["args"])).params
    return parsed


def secrets(objects: list[Object]) -> dict[str, str]:
    """Return the secrets that the container has mounted, by their folders."""
    places = {each["name"]: each["mountPath"] for each in container(objects)["volumeMounts"]}
    return {
        places[each["name"]]: each["secret"]["secretName"]
        for each in pod(objects)["volumes"]
        if "secret" in each
    }


def test_console_is_not_rendered_by_default(render: Render) -> None:
    assert [each for each in render() if "console" in each["metadata"]["name"]] == []


def test_console_of_named_cluster_uses_its_zookeeper_and_its_certificates(
    render: Render, tmp_path: Path
) -> None:
    objects = render(*ON, "console.cluster.namespace=orders")
    for kind in ("ConfigMap", "Deployment", "Service", "NetworkPolicy"):
        assert the(objects, kind)["metadata"]["namespace"] == "orders", "a secret is of one"
    read = settings(objects, tmp_path)
    assert (read.zookeeper, read.root) == ("log-zookeeper.orders.svc:2181", "/waltz")
    tls = read.tls_settings
    assert tls.enabled
    assert tls.server_name == "log.orders.waltz"
    assert {str(tls.ca), str(tls.certificate), str(tls.key)} == {
        "/tls/ca.crt",
        "/tls/tls.crt",
        "/tls/tls.key",
    }
    assert secrets(objects) == {"/tls": "log-tls"}
    assert not read.zookeeper_tls.enabled
    labels = the(objects, "Deployment")["spec"]["template"]["metadata"]["labels"]
    assert labels["waltz.dev/administers"] == "log", "NetworkPolicies of the storages admit it"


def test_console_of_external_zookeeper_uses_the_secrets_that_are_named(
    render: Render, tmp_path: Path
) -> None:
    objects = render(
        "console.enabled=true",
        r"console.cluster.zookeeper=zk-1:2281\,zk-2:2281",
        "console.cluster.root=/logs/orders",
        "console.cluster.tls.secretName=mine",
        "console.cluster.zookeeperTls.secretName=zk-tls",
        "console.cluster.zookeeperTls.serverName=zk.example",
    )
    read = settings(objects, tmp_path)
    assert (read.zookeeper, read.root) == ("zk-1:2281,zk-2:2281", "/logs/orders")
    assert read.tls_settings.server_name is None
    zookeeper = read.zookeeper_tls
    assert (zookeeper.enabled, zookeeper.server_name) == (True, "zk.example")
    assert str(zookeeper.certificate) == "/zookeeper-tls/tls.crt"
    assert secrets(objects) == {"/tls": "mine", "/zookeeper-tls": "zk-tls"}
    labels = the(objects, "Deployment")["spec"]["template"]["metadata"]["labels"]
    assert "waltz.dev/administers" not in labels


def test_console_of_plaintext_cluster_mounts_no_secret(render: Render, tmp_path: Path) -> None:
    objects = render(*ON, "console.cluster.tls.enabled=false")
    assert secrets(objects) == {}
    assert not settings(objects, tmp_path).tls_settings.enabled


@pytest.mark.parametrize("scheme", ["http", "https"])
def test_command_service_and_probes_agree_on_port_and_scheme(render: Render, scheme: str) -> None:
    more = "console.https.secretName=web" if scheme == "https" else "console.https.enabled=false"
    objects = render(*ON, more)
    parsed = options(objects)
    (port,) = container(objects)["ports"]
    assert (parsed["host"], parsed["port"]) == ("0.0.0.0", port["containerPort"])
    certificate = "/https/tls.crt" if scheme == "https" else None
    assert (parsed["certificate"] and str(parsed["certificate"])) == certificate
    assert (secrets(objects).get("/https") == "web") is (scheme == "https")
    service = the(objects, "Service")["spec"]
    assert service["type"] == "ClusterIP"
    assert service["ports"] == [{"name": scheme, "port": 8321, "targetPort": port["name"]}]
    for name in ("livenessProbe", "readinessProbe"):
        probe = container(objects)[name]["httpGet"]
        assert (probe["scheme"], probe["port"]) == (scheme.upper(), port["name"])
        assert probe["httpHeaders"] == [{"name": "Host", "value": "localhost"}]


def test_console_is_served_under_the_names_of_its_service_and_those_given(render: Render) -> None:
    parsed = options(render(*ON, "console.allowHosts={console.example}"))
    assert parsed["allow_host"] == [
        "mine-console",
        "mine-console.here",
        "mine-console.here.svc",
        "log.here.waltz",
        "console.example",
    ]


def test_console_of_named_cluster_serves_https_with_the_certificate_of_the_operator(
    render: Render,
) -> None:
    objects = render(*ON)
    parsed = options(objects)
    assert (str(parsed["certificate"]), str(parsed["key"])) == ("/tls/tls.crt", "/tls/tls.key")
    assert secrets(objects) == {"/tls": "log-tls"}
    assert the(objects, "Service")["spec"]["ports"][0]["name"] == "https"
    assert container(objects)["readinessProbe"]["httpGet"]["scheme"] == "HTTPS"


@pytest.mark.parametrize(
    "values",
    [
        (*ON, "console.https.enabled=false"),
        (*ON, "console.https.enabled=false", "console.https.secretName=web"),
        (*ON, "console.cluster.tls.enabled=false"),
        (*ON, "console.cluster.tls.secretName=client"),
        (
            "console.enabled=true",
            "console.cluster.zookeeper=zk:1",
            "console.cluster.tls.secretName=a",
        ),
    ],
    ids=("off", "off with a secret", "plaintext", "secret of a client", "external cluster"),
)
def test_console_without_a_certificate_of_the_operator_serves_http(
    render: Render, values: tuple[str, ...]
) -> None:
    objects = render(*values)
    parsed = options(objects)
    assert (parsed["certificate"], parsed["key"]) == (None, None)
    assert "/https" not in secrets(objects)
    assert the(objects, "Service")["spec"]["ports"][0]["name"] == "http"
    assert not any(host.endswith(".waltz") for host in parsed["allow_host"])


def test_console_listens_on_every_address_of_ipv6_if_asked(render: Render) -> None:
    (container,) = the(render(*ON, "console.host=::"), "Deployment")["spec"]["template"]["spec"][
        "containers"
    ]
    assert "--host=::" in container["args"]


def test_console_of_a_cluster_with_the_longest_name_is_rendered(render: Render) -> None:
    longest = 40  # The longest name of a WaltzCluster.
    assert render(*ON, f"console.cluster.name={'a' * longest}")


def test_console_pod_has_no_token_and_memory_for_its_files(render: Render) -> None:
    spec = pod(render(*ON))
    assert spec["automountServiceAccountToken"] is False
    assert "serviceAccountName" not in spec
    assert spec["securityContext"]["fsGroup"] == spec["securityContext"]["runAsUser"]
    assert spec["containers"][0]["resources"]["limits"] == {"memory": "256Mi"}
    for volume in spec["volumes"]:
        assert volume.get("secret", {}).get("defaultMode", 0o440) == 0o440


def test_selectors_of_the_console_select_no_pod_of_the_operator(render: Render) -> None:
    objects = render(*ON)
    selected = the(objects, "Service")["spec"]["selector"]
    assert the(objects, "Deployment")["spec"]["selector"]["matchLabels"] == selected
    assert the(objects, "NetworkPolicy")["spec"]["podSelector"]["matchLabels"] == selected
    (operator,) = (
        each for each in of_kind(objects, "Deployment") if each["metadata"]["name"] == "mine"
    )
    labels = operator["spec"]["template"]["metadata"]["labels"]
    assert not selected.items() <= labels.items()


def test_network_policy_admits_no_peer_by_default(render: Render) -> None:
    spec = the(render(*ON), "NetworkPolicy")["spec"]
    assert (spec["policyTypes"], spec["ingress"]) == (["Ingress"], [])


def test_network_policy_admits_the_given_peers_to_the_page(render: Render) -> None:
    peer = "console.networkPolicy.from[0].podSelector.matchLabels.app=proxy"
    (rule,) = the(render(*ON, peer), "NetworkPolicy")["spec"]["ingress"]
    assert rule["from"] == [{"podSelector": {"matchLabels": {"app": "proxy"}}}]
    assert rule["ports"] == [{"protocol": "TCP", "port": "console"}]
    without = render(*ON, "console.networkPolicy.enabled=false")
    assert of_kind(without, "NetworkPolicy") == []


def test_changed_settings_replace_the_pod(render: Render) -> None:
    stamps = {
        yaml.safe_dump(the(render(*ON, *more), "Deployment")["spec"]["template"]["metadata"])
        for more in ((), ("console.cluster.root=/other",))
    }
    assert len(stamps) == 2


@pytest.mark.parametrize(
    ("values", "message"),
    [
        (("console.enabled=true",), "console.cluster names no cluster"),
        (
            ("console.enabled=true", "console.cluster.zookeeper=zk:2181"),
            "console.cluster.tls.secretName is missing",
        ),
        ((*ON, "console.cluster.name=Log"), "name"),
        ((*ON, "console.cluster.zookeeper=zk"), "zookeeper"),
        ((*ON, "console.cluster.zookeeper=zk:2181/waltz"), "zookeeper"),
        ((*ON, "console.cluster.root=waltz"), "root"),
        ((*ON, "console.cluster.tls.mode=None"), "mode"),
        ((*ON, "console.https.secretName=a b"), "secretName"),
        ((*ON, "console.https.enabled=maybe"), "enabled"),
        ((*ON, "console.host=localhost"), "host"),
        ((*ON, "console.allowHosts={https://a}"), "allowHosts"),
        ((*ON, "console.intervalSeconds=0.1"), "intervalSeconds"),
        ((*ON, "console.service.type=ExternalName"), "service"),
        ((*ON, "console.service.port=0"), "port"),
        ((*ON, "console.image.pullPolicy=Sometimes"), "pullPolicy"),
        ((*ON, "console.replicas=2"), "replicas"),
    ],
    ids=lambda value: value[-1] if isinstance(value, tuple) else "",
)
def test_invalid_value_of_the_console_is_refused(
    helm: str, values: tuple[str, ...], message: str
) -> None:
    ran = template(helm, *values)
    assert ran.returncode != 0
    assert message in ran.stderr
