"""Query the versions of a cluster's processes. Touches the network.

Servers and storages answer ``GET /buildinfo`` on their HTTP ports. These ports are not in
ZooKeeper, so the caller must name them. The version of a storage is also in its metrics, which the
admin port returns (`storage_versions`). ZooKeeper answers the command ``srvr``.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
from collections.abc import Callable, Iterable, Mapping
from typing import Any

from waltz.admin.core.storage_figures import gauge_value
from waltz.metadata.core.zookeeper_answers import split_connect_string
from waltz.net import DialFailed, connect_problem, join_address, split_address

_BUILD_INFO = b"GET /buildinfo HTTP/1.0\r\n\r\n"
"""HTTP/1.0, so that the process closes the connection after its answer."""
_ZOOKEEPER_VERSION = "Zookeeper version: "

Version = dict[str, str]
"""Either ``service_name`` and ``version``, or ``problem``: why a process did not report them."""


async def query_versions(
    zookeeper: str, http: Iterable[str], *, timeout_seconds: float
) -> dict[str, Version]:
    """Return the versions of processes, by address. Problems are returned, not raised.

    ``zookeeper`` is a connect string; ``http`` are addresses of HTTP ports. A process has
    ``timeout_seconds`` for its answer.
    """
    # By address: the request, and the function that finds the version in its answer.
    requests = dict.fromkeys(http, (_BUILD_INFO, _build_info))
    for host, port in split_connect_string(zookeeper):
        requests[join_address(host, port)] = (b"srvr", _zookeeper_version)
    answers = await asyncio.gather(
        *(
            _query(address, request, parse, timeout_seconds)
            for address, (request, parse) in requests.items()
        )
    )
    return dict(zip(requests, answers, strict=True))


def storage_versions(metrics: Mapping[str, Any]) -> dict[str, Version]:
    """Return the versions in the metrics of storages (`StorageAdmin.metrics`), by storage.

    In ``metrics``, a storage that did not answer has only the key ``problem``, with the reason.
    """
    versions: dict[str, Version] = {}
    for storage, reported in metrics.items():
        version = gauge_value(reported, "waltz-version-id")
        if version is None:
            problem = reported.get("problem", "its metrics have no version")
            versions[storage] = {"problem": problem}
        else:
            versions[storage] = {"service_name": "waltz-storage", "version": version}
    return versions


async def _query(
    address: str, request: bytes, parse: Callable[[bytes], Version], seconds: float
) -> Version:
    """Send ``request`` and return the parsed answer, or the problem."""
    try:
        async with asyncio.timeout(seconds):
            reader, writer = await asyncio.open_connection(*split_address(address))
            try:
                writer.write(request)
                answer = await reader.read(-1)  # Each answer ends with the connection.
            finally:
                writer.close()
                with contextlib.suppress(OSError):
                    await writer.wait_closed()
    except (DialFailed, ValueError, OverflowError) as problem:
        # asyncio raises ValueError for a malformed host name, OverflowError for a port above 65535.
        return {"problem": str(problem)}
    except OSError as problem:
        # A TimeoutError of the operating system has an errno, that of `asyncio.timeout` has none.
        if isinstance(problem, TimeoutError) and problem.errno is None:
            return {"problem": f"no answer within {seconds:g} s"}
        return {"problem": connect_problem(problem)}
    try:
        return parse(answer)
    except ValueError:
        return {"problem": "the answer has no version"}


def _build_info(answer: bytes) -> Version:
    """Return the values of an answer to ``GET /buildinfo``. Raises ValueError."""
    info = json.loads(answer.partition(b"\r\n\r\n")[2])
    if not isinstance(info, dict) or "version" not in info:
        raise ValueError("not an object with a version")
    return {name: str(info[name]) for name in ("service_name", "version") if name in info}


def _zookeeper_version(answer: bytes) -> Version:
    """Return the version in an answer to ``srvr``. Raises ValueError."""
    for line in answer.decode("ascii", errors="replace").splitlines():
        if line.startswith(_ZOOKEEPER_VERSION):
            return {"service_name": "zookeeper", "version": line.removeprefix(_ZOOKEEPER_VERSION)}
    raise ValueError("no version")
