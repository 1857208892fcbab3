"""The address of the API server and this process's credentials for it.

Reads the environment, the files of a pod's service account, or a kubeconfig. The same login serves
the operator's own client, `kube_api`, and kopf.
"""

from __future__ import annotations

import asyncio
import logging
import os
import ssl
import time
from collections.abc import Callable
from importlib.util import find_spec
from pathlib import Path

import kopf

from waltz.net.core.addresses import join_address

log = logging.getLogger(__name__)

_SERVICE_ACCOUNT = Path("/var/run/secrets/kubernetes.io/serviceaccount")
"""The folder in which every pod finds its token and the API server's authority."""

_TOKEN_SECONDS = 60.0
"""The age of a token at which it is read again; the kubelet replaces the file before it expires."""


class NoKubeConfig(Exception):
    """No usable configuration names an API server; the message says what to do."""


def runs_in_pod() -> bool:
    """Return whether this process runs in a pod."""
    return "KUBERNETES_SERVICE_HOST" in os.environ


def pod_max_age() -> float | None:
    """Return the maximum age of this process's credentials in seconds, None if they have none."""
    return _TOKEN_SECONDS if runs_in_pod() else None


def log_in(folder: Path = _SERVICE_ACCOUNT) -> kopf.ConnectionInfo:
    """Return the address and the credentials, in a pod those of its service account.

    Outside of a pod they are those of the kubeconfig. ``folder`` has the files of the service
    account. Can start a program that the kubeconfig names, so it blocks. Raises NoKubeConfig.
    """
    try:
        return _service_account(folder) if runs_in_pod() else _kubeconfig()
    except NoKubeConfig:
        raise
    except Exception as problem:
        raise _unusable(_reason(problem)) from problem


def ssl_context_of(info: kopf.ConnectionInfo) -> ssl.SSLContext:
    """Return the context for connections to the API server. Reads files. Raises NoKubeConfig."""
    try:
        return info.as_ssl_context()
    except Exception as problem:
        raise _unusable(f"its certificates cannot be loaded: {_reason(problem)}") from problem


def _reason(problem: Exception) -> str:
    """Return the text of an error, on one line.

    For a malformed file the libraries raise errors of their own or many built-in errors.
    """
    text = str(problem)
    if isinstance(problem, OSError) and problem.filename is not None:
        text = f"cannot read {problem.filename}: {problem.strerror}"
    return " ".join(text.split()) or type(problem).__name__


def _service_account(folder: Path) -> kopf.ConnectionInfo:
    """Return the login of a pod.

    The address comes from the environment, so that the operator needs no DNS: it must also work
    while the pods of the DNS are away.
    """
    host, port = os.environ["KUBERNETES_SERVICE_HOST"], os.environ["KUBERNETES_SERVICE_PORT"]
    return kopf.ConnectionInfo(
        server=f"https://{join_address(host, int(port))}",
        ca_path=folder / "ca.crt",
        token=(folder / "token").read_text().strip(),
        default_namespace=(folder / "namespace").read_text().strip(),
    )


def _kubeconfig() -> kopf.ConnectionInfo:
    """Return the login of the kubeconfig's current context. Raises NoKubeConfig, and others."""
    settings = kopf.OperatorSettings()
    if has_kubernetes_client():
        # Only the package kubernetes starts the programs that print a cloud's credentials.
        found = kopf.login_via_client(logger=log, settings=settings)
    else:
        found = kopf.login_with_kubeconfig(settings=settings)
    if found is None or not found.server:
        raise _unusable("no kubeconfig names a server")
    has_certificate = found.certificate_path or found.certificate_data
    has_credentials = found.token or found.username or has_certificate
    if found.server.startswith("https:") and not has_credentials:
        raise _unusable(
            "the kubeconfig has no token, certificate or password; if it names a program that "
            "prints them, install waltz-log[kubeconfig]"
        )
    return found


def has_kubernetes_client() -> bool:
    """Return whether the package kubernetes is installed."""
    return find_spec("kubernetes") is not None


def _unusable(why: str) -> NoKubeConfig:
    """Return the error for a configuration that cannot be used."""
    return NoKubeConfig(
        f"no configuration of Kubernetes can be used: {why}; run in a pod with a service "
        "account, or name a kubeconfig by KUBECONFIG"
    )


class Credentials:
    """The credentials of this process, read again before they expire."""

    def __init__(
        self,
        login: Callable[[], kopf.ConnectionInfo],
        info: kopf.ConnectionInfo,
        max_age: float | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """``info`` is the result of the first ``login``.

        Credentials older than ``max_age`` seconds are read again; those without a maximum age are
        read again only after the API server has rejected them.
        """
        self._login = login
        self._info = info
        self._max_age = max_age
        self._clock = clock
        self._read_at = clock()

    @property
    def server(self) -> str:
        """The URL of the API server, without a slash at its end."""
        return self._info.server.rstrip("/")

    async def headers(self) -> dict[str, str]:
        """Return the headers that authenticate a request. Raises NoKubeConfig."""
        if self._max_age is not None and self._clock() - self._read_at >= self._max_age:
            await self.renew()
        return self._info.as_http_headers()

    async def renew(self) -> None:
        """Read the credentials again. Raises NoKubeConfig."""
        self._info = await asyncio.to_thread(self._login)
        self._read_at = self._clock()
