"""Find the address of the API server and this process's credentials for it.

Reads the environment, the files of a pod's service account, or a kubeconfig. The same login serves
the operator's own client (`kube_api`) and the library kopf, which watches resources.
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
"""The age of a token at which its file is read again.

The kubelet replaces the file long before the token in it expires. So a token that was read within
this time is still valid.
"""


class NoKubeConfig(Exception):
    """No usable configuration names an API server; the message says what to do."""


def runs_in_pod() -> bool:
    """Return whether this process runs in a pod."""
    return "KUBERNETES_SERVICE_HOST" in os.environ


def pod_max_age() -> float | None:
    """Return the age in seconds at which the credentials are read again; None outside of a pod."""
    return _TOKEN_SECONDS if runs_in_pod() else None


def log_in(folder: Path = _SERVICE_ACCOUNT) -> kopf.ConnectionInfo:
    """Return the address of the API server and the credentials for it.

    In a pod they are those of its service account, whose files are in ``folder``. Outside of a pod
    they are those of the kubeconfig. This function blocks: it reads files, and it may start a
    program that the kubeconfig names. Raises NoKubeConfig.
    """
    try:
        return _service_account(folder) if runs_in_pod() else _kubeconfig()
    except NoKubeConfig:
        raise
    except Exception as problem:
        # For a malformed file the libraries raise errors of their own and many built-in errors.
        raise _unusable(_reason(problem)) from problem


def ssl_context_of(info: kopf.ConnectionInfo) -> ssl.SSLContext:
    """Return the context for connections to the API server. Reads files. Raises NoKubeConfig."""
    try:
        return info.as_ssl_context()
    except Exception as problem:
        raise _unusable(f"its certificates cannot be loaded: {_reason(problem)}") from problem


def _reason(problem: Exception) -> str:
    """Return the text of an error on one line; the name of its class if it has no text."""
    text = str(problem)
    if isinstance(problem, OSError) and problem.filename is not None:
        text = f"cannot read {problem.filename}: {problem.strerror}"
    return " ".join(text.split()) or type(problem).__name__


def _service_account(folder: Path) -> kopf.ConnectionInfo:
    """Return the address and the credentials of a pod. Raises OSError, KeyError, ValueError.

    The address comes from the environment, because the operator must also work while the pods of
    the DNS do not run.
    """
    host, port = os.environ["KUBERNETES_SERVICE_HOST"], os.environ["KUBERNETES_SERVICE_PORT"]
    return kopf.ConnectionInfo(
        server=f"https://{join_address(host, int(port))}",
        ca_path=folder / "ca.crt",
        token=(folder / "token").read_text().strip(),
        default_namespace=(folder / "namespace").read_text().strip(),
    )


def _kubeconfig() -> kopf.ConnectionInfo:
    """Return the address and the credentials of the kubeconfig's current context.

    Raises NoKubeConfig, and the errors of the libraries for a malformed kubeconfig.
    """
    settings = kopf.OperatorSettings()
    if has_kubernetes_client():
        # A kubeconfig can name a program that prints a cloud's credentials. Only the package
        # kubernetes starts such programs.
        info = kopf.login_via_client(logger=log, settings=settings)
    else:
        info = kopf.login_with_kubeconfig(settings=settings)
    if info is None or not info.server:
        raise _unusable("no kubeconfig names a server")
    has_certificate = info.certificate_path or info.certificate_data
    has_credentials = info.token or info.username or has_certificate
    if info.server.startswith("https:") and not has_credentials:
        raise _unusable(
            "the kubeconfig has no token, certificate or password; if it names a program that "
            "prints them, install waltz-log[kubeconfig]"
        )
    return info


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
    """The credentials of this process, read again when they are old or were rejected."""

    def __init__(
        self,
        login: Callable[[], kopf.ConnectionInfo],
        info: kopf.ConnectionInfo,
        max_age: float | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """``login`` is called in a thread, because it blocks; ``info`` is its first result.

        Credentials older than ``max_age`` seconds are read again; None: at no age. In both cases
        the caller must call `renew` when the API server has rejected them.
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
        """Read the credentials again, whatever their age. Raises NoKubeConfig."""
        self._info = await asyncio.to_thread(self._login)
        self._read_at = self._clock()
