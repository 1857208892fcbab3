"""Serve an API server over HTTP that stores objects by path, for kopf and the operator."""

from __future__ import annotations

import asyncio
import json
from typing import Any

from aiohttp import web
from aiohttp.test_utils import TestServer

_RESOURCES = {
    "/api/v1": {"pods": "Pod", "events": "Event", "namespaces": "Namespace"},
    "/apis/waltz.dev/v1alpha1": {"waltzclusters": "WaltzCluster", "storagepools": "StoragePool"},
}


class SmallApiServer:
    """An API server. ``objects`` are by path; watches stay open without events."""

    def __init__(self) -> None:
        self.objects: dict[str, dict[str, Any]] = {}
        self._version = 0
        self._ending = asyncio.Event()
        application = web.Application()
        application.router.add_route("*", "/{path:.*}", self._handle)
        self._server = TestServer(application, host="127.0.0.1")

    async def start(self) -> str:
        """Start, and return the address."""
        await self._server.start_server()
        return str(self._server.make_url("")).rstrip("/")

    async def stop(self) -> None:
        """End all watches and stop."""
        self._ending.set()
        await self._server.close()

    def add(self, path: str, body: dict[str, Any]) -> None:
        """Store an object, or a new state of it."""
        self._version += 1
        body["metadata"]["resourceVersion"] = str(self._version)
        self.objects[path] = body

    async def _handle(self, request: web.Request) -> web.StreamResponse:
        path = request.path
        match request.method:
            case "GET" if path in ("/api", "/apis"):
                return web.json_response(_groups(path))
            case "GET" if path in _RESOURCES:
                return web.json_response(_resources(path))
            case "GET" if request.query.get("watch"):
                return await self._watch(request)
            case "GET" if path in self.objects:
                return web.json_response(self.objects[path])
            case "GET" if path.rpartition("/")[2].endswith("s"):
                return web.json_response(self._list(path))
            case "POST":
                body = await request.json()
                self.add(f"{path}/{body['metadata']['name']}", body)
                return web.json_response(body, status=201)
            case "PATCH":
                return await self._patch(request)
        return web.json_response({"message": "not found"}, status=404)

    def _list(self, path: str) -> dict[str, Any]:
        group, _, plural = path.rpartition("/")
        items = [
            body
            for key, body in self.objects.items()
            if key.startswith(group.partition("/namespaces")[0]) and f"/{plural}/" in key
        ]
        metadata = {"resourceVersion": str(self._version)}
        return {"kind": "List", "apiVersion": "v1", "metadata": metadata, "items": items}

    async def _watch(self, request: web.Request) -> web.StreamResponse:
        response = web.StreamResponse()
        await response.prepare(request)
        await self._ending.wait()
        return response

    async def _patch(self, request: web.Request) -> web.Response:
        path = request.path.removesuffix("/status")
        change = json.loads(await request.text())
        body = self.objects.setdefault(path, {"metadata": {}})
        for part, value in change.items():
            if isinstance(value, dict):
                body.setdefault(part, {}).update(value)
            else:
                body[part] = value
        self.add(path, body)
        return web.json_response(body)


def _groups(path: str) -> dict[str, Any]:
    if path == "/api":
        return {"kind": "APIVersions", "versions": ["v1"]}
    version = {"groupVersion": "waltz.dev/v1alpha1", "version": "v1alpha1"}
    group = {"name": "waltz.dev", "versions": [version], "preferredVersion": version}
    return {"kind": "APIGroupList", "groups": [group]}


def _resources(path: str) -> dict[str, Any]:
    verbs = ["get", "list", "watch", "patch", "create", "delete"]
    return {
        "kind": "APIResourceList",
        "groupVersion": path.removeprefix("/apis/").removeprefix("/api/"),
        "resources": [
            {
                "name": plural,
                "singularName": kind.lower(),
                "kind": kind,
                "namespaced": kind != "Namespace",
                "verbs": verbs,
            }
            for plural, kind in _RESOURCES[path].items()
        ],
    }
