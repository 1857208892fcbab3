"""Send requests to the Kubernetes API server. Touches the network.

`Kube` is the interface, `ApiServer` the implementation. Objects are plain dictionaries. The package
kubernetes is not used, because importing it takes 20 MB of the operator's memory.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from typing import Any, Protocol

from aiohttp import (
    ClientError,
    ClientResponse,
    ClientSession,
    ClientTimeout,
    StreamReader,
    TCPConnector,
)

from waltz_operator.core.names import MANAGER
from waltz_operator.core.objects.manifest import API_VERSIONS
from waltz_operator.core.observed import LiveObject
from waltz_operator.shell.api_login import (
    Credentials,
    NoKubeConfig,
    log_in,
    pod_max_age,
    ssl_context_of,
)

_PLURALS = {"NetworkPolicy": "networkpolicies"}
"""The plurals in URLs that are not just the kind in lower case with an s."""

_TIMEOUT_SECONDS = 30.0
"""The time limit of a request, and how long the end of a watch may be late."""

_WATCH_SECONDS = 240
"""The time after which the API server ends a watch."""

_MERGE_PATCH = "application/merge-patch+json"
"""The content type of a patch whose fields replace those of the object; null removes a field."""

_REFUSALS = (403, 422)
"""The HTTP statuses by which the API server refuses a request: 403 forbidden, 422 invalid."""


class KubeError(Exception):
    """The API server refused a request or did not answer; the message has the reason."""


class Conflict(KubeError):
    """The object has changed since it was read, or it exists already: read it again."""


class NotFound(KubeError):
    """The object does not exist."""


class Refused(KubeError):
    """The API server refused the request by its rules or rights; ``reason`` is its message."""

    def __init__(self, message: str, reason: str) -> None:
        super().__init__(message)
        self.reason = reason


class Kube(Protocol):
    """Access to the API server. Every method can raise KubeError."""

    async def get(self, kind: str, namespace: str, name: str) -> LiveObject | None:
        """Return an object, None if it does not exist."""

    async def find(self, kind: str, namespace: str, labels: Mapping[str, str]) -> list[LiveObject]:
        """Return the objects that have all ``labels``; no objects if the kind does not exist.

        An empty ``namespace`` means all namespaces.
        """

    async def create(self, body: Mapping[str, Any]) -> None:
        """Create an object. Raises Conflict if it exists."""

    async def apply(self, body: Mapping[str, Any]) -> None:
        """Create or change an object by a server-side apply.

        Fields that other controllers have set stay, unless ``body`` names them. If ``body``
        contains a ``resourceVersion``, the apply is a compare-and-set: it raises Conflict if the
        object has another version.
        """

    async def patch(
        self, kind: str, namespace: str, name: str, change: Mapping[str, Any], *, part: str = ""
    ) -> None:
        """Merge ``change`` into an object, or into its subresource ``part``, such as ``status``.

        If ``change`` contains a ``resourceVersion``, the patch is a compare-and-set: it raises
        Conflict if the object has another version. Raises NotFound.
        """

    async def patch_refusal(
        self, kind: str, namespace: str, name: str, change: Mapping[str, Any]
    ) -> str | None:
        """Return why the API server would refuse a patch; nothing is changed.

        The result is None if the API server would accept the patch, if the object does not exist,
        or if only the patch itself can show the answer.
        """

    async def delete(
        self, kind: str, namespace: str, name: str, uid: str, *, orphan: bool = False
    ) -> None:
        """Delete the object if it exists and has this uid; an empty ``uid`` means any.

        With ``orphan``, the objects that the deleted object owns stay, without an owner.
        """


@asynccontextmanager
async def connected_api_server() -> AsyncIterator[ApiServer]:
    """Yield the API server of this pod's Kubernetes or, outside of a pod, that of the kubeconfig.

    Raises NoKubeConfig.
    """
    info = await asyncio.to_thread(log_in)
    credentials = Credentials(log_in, info, pod_max_age())
    connector = TCPConnector(ssl=await asyncio.to_thread(ssl_context_of, info))
    async with ClientSession(
        connector=connector, proxy=info.proxy_url, trust_env=info.trust_env
    ) as session:
        yield ApiServer(session, credentials)


class ApiServer:
    """Sends requests to the API server by ``session``. Implements `Kube`."""

    def __init__(self, session: ClientSession, credentials: Credentials) -> None:
        self._session = session
        self._credentials = credentials

    async def get(self, kind: str, namespace: str, name: str) -> LiveObject | None:
        """See Kube."""
        status, answer = await self._call("GET", path_of(kind, namespace, name), allowed=(404,))
        return None if status == 404 else answer

    async def find(self, kind: str, namespace: str, labels: Mapping[str, str]) -> list[LiveObject]:
        """See Kube."""
        selector = ",".join(f"{key}={value}" for key, value in labels.items())
        query = [("labelSelector", selector)]
        path = path_of(kind, namespace)
        status, answer = await self._call("GET", path, query=query, allowed=(404,))
        if status == 404:
            return []
        # The items of a list lack their kind and version.
        named = {"apiVersion": API_VERSIONS[kind], "kind": kind}
        return [named | item for item in answer["items"]]

    async def create(self, body: Mapping[str, Any]) -> None:
        """See Kube."""
        await self._call("POST", path_of(body["kind"], body["metadata"]["namespace"]), body=body)

    async def apply(self, body: Mapping[str, Any]) -> None:
        """See Kube."""
        metadata = body["metadata"]
        path = path_of(body["kind"], metadata["namespace"], metadata["name"])
        query = [("fieldManager", MANAGER), ("force", "true")]
        content_type = "application/apply-patch+yaml"
        await self._call("PATCH", path, query=query, body=body, content_type=content_type)

    async def patch(
        self, kind: str, namespace: str, name: str, change: Mapping[str, Any], *, part: str = ""
    ) -> None:
        """See Kube."""
        path = path_of(kind, namespace, name) + (f"/{part}" if part else "")
        await self._call("PATCH", path, body=change, content_type=_MERGE_PATCH)

    async def patch_refusal(
        self, kind: str, namespace: str, name: str, change: Mapping[str, Any]
    ) -> str | None:
        """See Kube."""
        path, query = path_of(kind, namespace, name), [("dryRun", "All")]
        # 400: a webhook of the Kubernetes cluster does not support dry runs. 404: the object was
        # deleted. In both cases only the patch itself shows what the API server says.
        allowed = (400, 404)
        try:
            await self._call(
                "PATCH",
                path,
                query=query,
                body=change,
                content_type=_MERGE_PATCH,
                allowed=allowed,
            )
        except Refused as refused:
            return refused.reason
        return None

    async def delete(
        self, kind: str, namespace: str, name: str, uid: str, *, orphan: bool = False
    ) -> None:
        """See Kube."""
        body: dict[str, Any] = {"propagationPolicy": "Orphan" if orphan else "Background"}
        if uid:
            body["preconditions"] = {"uid": uid}
        path = path_of(kind, namespace, name)
        # Status 409: the name belongs to a new object now, which must not be deleted.
        await self._call("DELETE", path, body=body, allowed=(404, 409))

    async def changes(
        self, kind: str, namespace: str, labels: Mapping[str, str]
    ) -> AsyncIterator[LiveObject]:
        """Yield all existing objects with ``labels``, then each object that changes.

        Added and deleted objects are yielded, too. The watch ends after some minutes. The next call
        yields all existing objects again. Raises KubeError.
        """
        selector = ",".join(f"{key}={value}" for key, value in labels.items())
        query = [
            ("watch", "true"),
            ("labelSelector", selector),
            ("timeoutSeconds", str(_WATCH_SECONDS)),
        ]
        path = path_of(kind, namespace)
        seconds = _WATCH_SECONDS + _TIMEOUT_SECONDS
        try:
            async with self._request("GET", path, query, seconds=seconds) as response:
                if response.status >= 300:
                    text = await response.read()
                    raise KubeError(f"watch of {path}: {response.status} {_message(text)}")
                async for line in _lines(response.content):
                    yield _object_of(line)
        except (NoKubeConfig, OSError, TimeoutError, ClientError, ValueError) as broken:
            raise KubeError(f"watch of {path}: {str(broken) or 'no answer in time'}") from broken

    @asynccontextmanager
    async def _request(
        self,
        method: str,
        path: str,
        query: list[tuple[str, str]],
        *,
        body: Mapping[str, Any] | None = None,
        content_type: str = "application/json",
        seconds: float = _TIMEOUT_SECONDS,
    ) -> AsyncIterator[ClientResponse]:
        """Send a request and yield the answer.

        The status 401 means that the credentials were rejected: then read them again, and send the
        request a second time.
        """
        for is_last_attempt in (False, True):
            headers = await self._credentials.headers()
            headers |= {"Accept": "application/json", "Content-Type": content_type}
            async with self._session.request(
                method,
                self._credentials.server + path,
                params=query,
                headers=headers,
                data=None if body is None else json.dumps(body),
                timeout=ClientTimeout(total=seconds),
            ) as response:
                if response.status != 401 or is_last_attempt:
                    yield response
                    return
            await self._credentials.renew()

    async def _call(
        self,
        method: str,
        path: str,
        *,
        query: list[tuple[str, str]] | None = None,
        body: Mapping[str, Any] | None = None,
        content_type: str = "application/json",
        allowed: tuple[int, ...] = (),
    ) -> tuple[int, Any]:
        """Send a request; return the status and the decoded answer.

        The error statuses in ``allowed`` raise no error: the answer is then None. Otherwise raises
        Conflict, NotFound, Refused or another KubeError.
        """
        try:
            async with self._request(
                method, path, query or [], body=body, content_type=content_type
            ) as response:
                text = await response.read()
        except (NoKubeConfig, OSError, TimeoutError, ClientError) as broken:
            raise KubeError(f"{method} {path}: {str(broken) or 'no answer in time'}") from broken
        if response.status in allowed:
            return response.status, None
        if response.status == 409:
            raise Conflict(f"{method} {path}: {_message(text)}")
        if response.status == 404:
            raise NotFound(f"{method} {path}: 404 {_message(text)}")
        if response.status in _REFUSALS:
            raise Refused(f"{method} {path}: {response.status} {_message(text)}", _message(text))
        if response.status >= 300:
            raise KubeError(f"{method} {path}: {response.status} {_message(text)}")
        try:
            return response.status, json.loads(text)
        except ValueError as malformed:
            raise KubeError(f"{method} {path}: the answer is not JSON: {malformed}") from malformed


async def _lines(content: StreamReader) -> AsyncIterator[bytes]:
    """Yield the lines of an answer, without their line ends.

    The iteration that ``content`` itself offers refuses long lines. But the line of an object may
    have more than a MiB.
    """
    # The beginning of a line whose end has not been received.
    parts: list[bytes] = []
    async for received in content.iter_any():
        *line_ends, rest = received.split(b"\n")
        for line_end in line_ends:
            yield b"".join([*parts, line_end])
            parts = []
        parts.append(rest)
    last = b"".join(parts)
    if last:
        yield last


def _object_of(event: bytes) -> LiveObject:
    """Return the object of an event of a watch. Raises ValueError if the event is malformed."""
    match json.loads(event):
        case {"object": dict() as changed}:
            return changed
    raise ValueError(f"an event without an object: {event[:200]!r}")


def path_of(kind: str, namespace: str, name: str = "") -> str:
    """Return the URL path of the object ``name``, or of all objects of the kind without ``name``.

    An empty namespace means all namespaces.
    """
    version = API_VERSIONS[kind]
    root = f"/apis/{version}" if "/" in version else f"/api/{version}"
    plural = _PLURALS.get(kind, f"{kind.lower()}s")
    where = f"/namespaces/{namespace}" if namespace else ""
    return f"{root}{where}/{plural}" + (f"/{name}" if name else "")


def _message(text: bytes) -> str:
    """Return the message in an answer of the API server, or the beginning of the answer."""
    try:
        return str(json.loads(text)["message"])
    except (ValueError, KeyError, TypeError):
        return text.decode(errors="replace")[:200]
