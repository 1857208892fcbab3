"""Test where the operator finds the API server and its credentials."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path

import kopf
import pytest

from waltz_operator.shell import api_login
from waltz_operator.shell.api_login import (
    Credentials,
    NoKubeConfig,
    log_in,
    pod_max_age,
    ssl_context_of,
)
from waltz_operator.shell.kube_api import connected_api_server

_KUBECONFIG = """
current-context: test
contexts: [{name: test, context: {cluster: test, user: test}}]
clusters: [{name: test, cluster: {server: "https://api.test:6443"}}]
users: [{name: test, user: USER}]
"""


@pytest.fixture
def service_account(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return the folder of a service account; the environment is that of a pod."""
    monkeypatch.setenv("KUBERNETES_SERVICE_HOST", "10.96.0.1")
    monkeypatch.setenv("KUBERNETES_SERVICE_PORT", "443")
    (tmp_path / "token").write_text("secret\n")
    (tmp_path / "namespace").write_text("ops")
    return tmp_path


@pytest.fixture(params=[True, False], ids=["with the library", "without the library"])
def kubeconfig(
    request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Path:
    """Return the path of a kubeconfig, with and without the package kubernetes."""
    monkeypatch.delenv("KUBERNETES_SERVICE_HOST", raising=False)
    path = tmp_path / "config"
    monkeypatch.setenv("KUBECONFIG", str(path))
    # The package reads the variable when it is imported, which another test may have caused.
    monkeypatch.setattr("kubernetes.config.kube_config.KUBE_CONFIG_DEFAULT_LOCATION", str(path))
    if not request.param:
        monkeypatch.setattr(api_login, "has_kubernetes_client", lambda: False)
    return path


def test_login_in_a_pod_needs_no_dns_and_has_the_token(service_account: Path) -> None:
    info = log_in(service_account)
    assert (info.server, info.default_namespace) == ("https://10.96.0.1:443", "ops")
    assert info.as_http_headers() == {"Authorization": "Bearer secret"}
    assert info.ca_path == service_account / "ca.crt"
    assert pod_max_age() == 60


def test_login_in_a_pod_with_ipv6_has_brackets_in_the_url(
    service_account: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("KUBERNETES_SERVICE_HOST", "fd00::1")
    assert log_in(service_account).server == "https://[fd00::1]:443"


def test_login_in_a_pod_without_a_service_account_names_the_file(service_account: Path) -> None:
    (service_account / "token").unlink()
    with pytest.raises(NoKubeConfig, match=f"cannot read {service_account}/token"):
        log_in(service_account)


def test_login_outside_of_a_pod_uses_the_kubeconfig(kubeconfig: Path) -> None:
    kubeconfig.write_text(_KUBECONFIG.replace("USER", "{token: secret}"))
    info = log_in()
    assert info.server == "https://api.test:6443"
    assert info.as_http_headers() == {"Authorization": "Bearer secret"}
    assert pod_max_age() is None


@pytest.mark.parametrize("content", [None, "", "[]", "current-context: missing", "\0", ": :"])
def test_login_with_an_unusable_kubeconfig_says_what_to_do(
    kubeconfig: Path, content: str | None
) -> None:
    if content is not None:
        kubeconfig.write_text(content)
    with pytest.raises(NoKubeConfig, match=r"or name a kubeconfig by KUBECONFIG$"):
        log_in()


@pytest.mark.parametrize(
    "authority",
    [
        "certificate-authority-data: bm90IGEgY2VydGlmaWNhdGU=",
        "certificate-authority-data: x",
        "certificate-authority: /missing/ca.crt",
    ],
)
def test_unusable_authority_of_a_kubeconfig_says_what_to_do(
    kubeconfig: Path, authority: str
) -> None:
    kubeconfig.write_text(
        _KUBECONFIG.replace("USER", "{token: secret}").replace('6443"', f'6443", {authority}')
    )

    async def connect() -> None:
        async with connected_api_server():
            pass

    with pytest.raises(NoKubeConfig, match=r"or name a kubeconfig by KUBECONFIG$"):
        asyncio.run(connect())


def test_login_in_a_pod_without_the_authority_is_an_error_that_says_so(
    service_account: Path,
) -> None:
    with pytest.raises(NoKubeConfig, match=r"its certificates cannot be loaded: "):
        ssl_context_of(log_in(service_account))


def test_login_by_a_program_runs_it_or_names_the_missing_extra(kubeconfig: Path) -> None:
    program = kubeconfig.with_name("program")
    answer = json.dumps(
        {
            "apiVersion": "client.authentication.k8s.io/v1",
            "kind": "ExecCredential",
            "status": {"token": "printed"},
        }
    )
    program.write_text(f"#!/bin/sh\necho '{answer}'\n")
    program.chmod(0o755)
    user = (
        "{exec: {apiVersion: client.authentication.k8s.io/v1, interactiveMode: Never, "
        f"command: {program}}}}}"
    )
    kubeconfig.write_text(_KUBECONFIG.replace("USER", user))
    if api_login.has_kubernetes_client():
        assert log_in().as_http_headers() == {"Authorization": "Bearer printed"}
    else:
        with pytest.raises(NoKubeConfig, match=r"install waltz-log\[kubeconfig\]"):
            log_in()


async def test_credentials_are_read_again_at_their_maximum_age() -> None:
    now, logins = 0.0, 0

    def log_in() -> kopf.ConnectionInfo:
        nonlocal logins
        logins += 1
        return kopf.ConnectionInfo(server="https://api.test/", token=str(logins))

    aging = Credentials(log_in, log_in(), 60.0, lambda: now)
    lasting = Credentials(log_in, log_in(), None, lambda: now)
    assert aging.server == "https://api.test"
    now = 59.0
    assert await aging.headers() == {"Authorization": "Bearer 1"}
    now = 60.0
    assert await aging.headers() == {"Authorization": "Bearer 3"}
    assert await lasting.headers() == {"Authorization": "Bearer 2"}
    await lasting.renew()
    assert await lasting.headers() == {"Authorization": "Bearer 4"}
