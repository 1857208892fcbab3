"""The real access to an API server, against one that only remembers what it was asked."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from typing import Any

import pytest
from aiohttp import web
from aiohttp.test_utils import TestServer
from kubernetes.aio.client import ApiClient, Configuration

from waltz_operator.shell.http import as_text, serve_http
from waltz_operator.shell.kube_api import ApiServer, Conflict, KubeError, path_of

_PODS = "/api/v1/namespaces/logs/pods"


class Recorder:
    """Answers with what it is told to, and keeps what it was asked."""

    def __init__(self) -> None:
        self.asked: list[tuple[str, str, dict[str, str], str, str]] = []
        self.status = 200
        self.answer: Any = {}

    async def handle(self, request: web.Request) -> web.StreamResponse:
        form, body = request.headers.get("Content-Type", ""), await request.text()
        self.asked.append((request.method, request.path, dict(request.query), form, body))
        if request.query.get("watch") and self.status == 200:
            lines = [json.dumps({"type": "ADDED", "object": each}) for each in self.answer]
            return web.Response(text="\n".join(lines) + "\n")
        return web.json_response(self.answer, status=self.status)


@pytest.fixture
def recorder() -> Recorder:
    return Recorder()


@pytest.fixture
async def kube(recorder: Recorder) -> AsyncIterator[ApiServer]:
    application = web.Application()
    application.router.add_route("*", "/{path:.*}", recorder.handle)
    server = TestServer(application, host="127.0.0.1")
    await server.start_server()
    configuration = Configuration(host=str(server.make_url("")).rstrip("/"))
    async with ApiClient(configuration) as client:
        yield ApiServer(client)
    await server.close()


def test_paths() -> None:
    assert path_of("Pod", "logs", "x") == f"{_PODS}/x"
    assert path_of("Deployment", "") == "/apis/apps/v1/deployments"
    assert (
        path_of("NetworkPolicy", "a") == "/apis/networking.k8s.io/v1/namespaces/a/networkpolicies"
    )
    assert path_of("WaltzCluster", "a") == "/apis/waltz.dev/v1alpha1/namespaces/a/waltzclusters"


async def test_lists_are_selected_by_the_server_and_what_is_in_them_says_what_it_is(
    kube: ApiServer, recorder: Recorder
) -> None:
    recorder.answer = {"items": [{"metadata": {"name": "x"}}]}
    found = await kube.find("Pod", "logs", {"a": "1", "b": "2"})
    assert found == [{"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "x"}}]
    assert recorder.asked[0][:3] == ("GET", _PODS, {"labelSelector": "a=1,b=2"})


async def test_an_apply_takes_fields_over(kube: ApiServer, recorder: Recorder) -> None:
    body = {"kind": "Pod", "metadata": {"name": "x", "namespace": "logs"}}
    await kube.apply(body)
    method, path, query, form, sent = recorder.asked[0]
    assert (method, path) == ("PATCH", f"{_PODS}/x")
    assert query == {"fieldManager": "waltz-operator", "force": "true"}
    assert form == "application/apply-patch+yaml"
    assert json.loads(sent) == body


async def test_a_deletion_is_of_what_was_seen(kube: ApiServer, recorder: Recorder) -> None:
    await kube.delete("Pod", "logs", "x", "uid-1")
    assert json.loads(recorder.asked[0][4])["preconditions"] == {"uid": "uid-1"}
    recorder.status = 404
    await kube.delete("Pod", "logs", "x", "uid-1")


async def test_patches_of_a_part(kube: ApiServer, recorder: Recorder) -> None:
    await kube.patch("WaltzCluster", "a", "x", {"status": {"message": "m"}}, part="status")
    method, path, _, form, sent = recorder.asked[0]
    assert (method, form) == ("PATCH", "application/merge-patch+json")
    assert path.endswith("/waltzclusters/x/status")
    assert json.loads(sent) == {"status": {"message": "m"}}


async def test_what_is_not_there_is_none(kube: ApiServer, recorder: Recorder) -> None:
    recorder.status = 404
    assert await kube.get("Pod", "logs", "x") is None
    assert await kube.find("Certificate", "logs", {}) == []


async def test_refusals_are_told_in_the_servers_words(kube: ApiServer, recorder: Recorder) -> None:
    recorder.answer = {"message": "spec.partitions: Invalid value"}
    recorder.status = 422
    with pytest.raises(KubeError, match="Invalid value"):
        await kube.apply({"kind": "Pod", "metadata": {"name": "x", "namespace": "logs"}})
    recorder.status = 409
    with pytest.raises(Conflict):
        await kube.create({"kind": "Pod", "metadata": {"name": "x", "namespace": "logs"}})


async def test_a_server_that_is_gone_is_an_error_of_its_own() -> None:
    async with ApiClient(Configuration(host="http://127.0.0.1:9")) as client:
        with pytest.raises(KubeError):
            await ApiServer(client).get("Pod", "logs", "x")


async def test_changes_are_yielded_one_by_one(kube: ApiServer, recorder: Recorder) -> None:
    recorder.answer = [{"metadata": {"name": name}} for name in "ab"]
    names = [each["metadata"]["name"] async for each in kube.changes("Pod", "", {"a": "1"})]
    assert names == ["a", "b"]
    assert recorder.asked[0][1] == "/api/v1/pods"


@pytest.mark.parametrize("status", [403, 410, 429, 503])
async def test_a_watch_that_is_refused_is_an_error_of_its_own(
    kube: ApiServer, recorder: Recorder, status: int
) -> None:
    recorder.status = status
    changes = kube.changes("Deployment", "", {})
    with pytest.raises(KubeError, match=str(status)):
        await anext(changes)


async def test_health_and_metrics() -> None:
    problem: list[str] = []
    async with (
        serve_http(
            "127.0.0.1", 0, lambda: problem[0] if problem else None, lambda: {"waltz_x_total": 2}
        ) as port,
        ApiClient(Configuration(host=f"http://127.0.0.1:{port}")) as client,
    ):
        answer = await client.rest_client.request("GET", f"http://127.0.0.1:{port}/healthz")
        assert answer.status == 200
        problem.append("it is ill")
        answer = await client.rest_client.request("GET", f"http://127.0.0.1:{port}/healthz")
        assert answer.status == 503
        answer = await client.rest_client.request("GET", f"http://127.0.0.1:{port}/metrics")
        assert (await answer.read()).decode() == as_text({"waltz_x_total": 2})
    assert as_text({"waltz_x_total": 2}) == "# TYPE waltz_x_total counter\nwaltz_x_total 2\n"
