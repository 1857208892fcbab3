"""Test the client of the API server against a server that records requests."""

from __future__ import annotations

import itertools
import json
from collections.abc import AsyncIterator
from typing import Any, NamedTuple, cast

import kopf
import pytest
from aiohttp import ClientSession, web
from aiohttp.test_utils import TestServer
from prometheus_client.metrics_core import CounterMetricFamily, Metric
from prometheus_client.registry import Collector

from waltz_operator.shell.api_login import Credentials
from waltz_operator.shell.http import serve_http
from waltz_operator.shell.kube_api import ApiServer, Conflict, KubeError, NotFound, path_of

_PODS = "/api/v1/namespaces/logs/pods"


class RecordedRequest(NamedTuple):
    """A request; ``form`` is the content type of its body."""

    method: str
    path: str
    query: dict[str, str]
    form: str
    body: str


class Recorder:
    """Records requests and returns the configured answer."""

    def __init__(self) -> None:
        self.requests: list[RecordedRequest] = []
        self.status = 200
        self.answer: Any = {}
        self.text: str | None = None
        self.watched = ""
        """The answer to a watch; empty: the objects of ``answer``."""
        self.tokens: list[str] = []
        self.only_token = ""
        """The only token that is accepted; every one if it is empty."""

    async def handle(self, request: web.Request) -> web.StreamResponse:
        form, body = request.headers.get("Content-Type", ""), await request.text()
        query = dict(request.query)
        self.requests.append(RecordedRequest(request.method, request.path, query, form, body))
        self.tokens.append(request.headers["Authorization"].removeprefix("Bearer "))
        if self.only_token not in ("", self.tokens[-1]):
            return web.json_response({"message": "Unauthorized"}, status=401)
        if request.query.get("watch") and self.status == 200:
            if self.watched:
                return web.Response(text=self.watched)
            lines = [json.dumps({"type": "ADDED", "object": each}) for each in self.answer]
            return web.Response(text="\n".join(lines) + "\n")
        if self.text is not None:
            return web.Response(text=self.text, status=self.status)
        return web.json_response(self.answer, status=self.status)


@pytest.fixture
def recorder() -> Recorder:
    return Recorder()


def credentials_of(server: str) -> Credentials:
    """Return credentials whose token is the number of the login."""
    tokens = itertools.count(1)

    def log_in() -> kopf.ConnectionInfo:
        return kopf.ConnectionInfo(server=server, token=str(next(tokens)))

    return Credentials(log_in, log_in())


@pytest.fixture
async def kube(recorder: Recorder) -> AsyncIterator[ApiServer]:
    application = web.Application()
    application.router.add_route("*", "/{path:.*}", recorder.handle)
    server = TestServer(application, host="127.0.0.1")
    await server.start_server()
    async with ClientSession() as session:
        yield ApiServer(session, credentials_of(str(server.make_url(""))))
    await server.close()


def test_path_contains_group_namespace_and_plural() -> None:
    assert path_of("Pod", "logs", "x") == f"{_PODS}/x"
    assert path_of("Deployment", "") == "/apis/apps/v1/deployments"
    assert (
        path_of("NetworkPolicy", "a") == "/apis/networking.k8s.io/v1/namespaces/a/networkpolicies"
    )
    assert path_of("WaltzCluster", "a") == "/apis/waltz.dev/v1alpha1/namespaces/a/waltzclusters"


async def test_find_selects_by_label_on_the_server_and_adds_kind_and_version(
    kube: ApiServer, recorder: Recorder
) -> None:
    recorder.answer = {"items": [{"metadata": {"name": "x"}}]}
    found = await kube.find("Pod", "logs", {"a": "1", "b": "2"})
    assert found == [{"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "x"}}]
    assert recorder.requests[0][:3] == ("GET", _PODS, {"labelSelector": "a=1,b=2"})


class SilentSession:
    """A session that gets no answer in time."""

    def request(self, *_: Any, **__: Any) -> Any:
        raise TimeoutError


async def test_request_without_an_answer_says_so() -> None:
    session = cast(ClientSession, SilentSession())
    silent = ApiServer(session, credentials_of("http://127.0.0.1:9"))
    with pytest.raises(KubeError, match=f"^GET {_PODS}: no answer in time$"):
        await silent.find("Pod", "logs", {})
    with pytest.raises(KubeError, match=f"^watch of {_PODS}: no answer in time$"):
        await anext(aiter(silent.changes("Pod", "logs", {})))


async def test_request_with_an_expired_token_is_repeated_once_with_a_new_one(
    kube: ApiServer, recorder: Recorder
) -> None:
    recorder.only_token = "2"
    assert await kube.get("Pod", "logs", "x") == {}
    assert recorder.tokens == ["1", "2"]
    recorder.only_token = "none"
    with pytest.raises(KubeError, match="401"):
        await kube.get("Pod", "logs", "x")
    assert recorder.tokens == ["1", "2", "2", "3"]


async def test_apply_forces_ownership_of_fields(kube: ApiServer, recorder: Recorder) -> None:
    body = {"kind": "Pod", "metadata": {"name": "x", "namespace": "logs"}}
    await kube.apply(body)
    method, path, query, form, sent = recorder.requests[0]
    assert (method, path) == ("PATCH", f"{_PODS}/x")
    assert query == {"fieldManager": "waltz-operator", "force": "true"}
    assert form == "application/apply-patch+yaml"
    assert json.loads(sent) == body


async def test_delete_has_the_uid_as_precondition_and_ignores_missing_objects(
    kube: ApiServer, recorder: Recorder
) -> None:
    await kube.delete("Pod", "logs", "x", "uid-1")
    assert json.loads(recorder.requests[0].body)["preconditions"] == {"uid": "uid-1"}
    recorder.status = 404
    await kube.delete("Pod", "logs", "x", "uid-1")


async def test_deletion_can_leave_the_owned_objects(kube: ApiServer, recorder: Recorder) -> None:
    await kube.delete("StatefulSet", "logs", "x", "uid-1")
    await kube.delete("StatefulSet", "logs", "x", "uid-1", orphan=True)
    policies = [json.loads(each.body)["propagationPolicy"] for each in recorder.requests]
    assert policies == ["Background", "Orphan"]


async def test_refusal_of_a_patch_is_asked_for_without_changing_anything(
    kube: ApiServer, recorder: Recorder
) -> None:
    change = {"spec": {"resources": {"requests": {"storage": "2Gi"}}}}
    assert await kube.patch_refusal("PersistentVolumeClaim", "logs", "x", change) is None
    method, path, query, form, sent = recorder.requests[0]
    assert (method, path) == ("PATCH", "/api/v1/namespaces/logs/persistentvolumeclaims/x")
    assert (query, form) == ({"dryRun": "All"}, "application/merge-patch+json")
    assert json.loads(sent) == change
    recorder.answer = {"message": "the class does not allow it"}
    for status, reason in ((403, "the class does not allow it"), (400, None), (404, None)):
        recorder.status = status
        found = await kube.patch_refusal("PersistentVolumeClaim", "logs", "x", change)
        assert found == reason
    recorder.status = 500
    with pytest.raises(KubeError):
        await kube.patch_refusal("PersistentVolumeClaim", "logs", "x", change)


async def test_patch_of_an_object_that_does_not_exist_raises_not_found(
    kube: ApiServer, recorder: Recorder
) -> None:
    recorder.status, recorder.answer = 404, {"message": "pods x not found"}
    with pytest.raises(NotFound, match="pods x not found"):
        await kube.patch("Pod", "logs", "x", {"metadata": {}})


async def test_patch_of_status_uses_the_subresource(kube: ApiServer, recorder: Recorder) -> None:
    await kube.patch("WaltzCluster", "a", "x", {"status": {"message": "m"}}, part="status")
    method, path, _, form, sent = recorder.requests[0]
    assert (method, form) == ("PATCH", "application/merge-patch+json")
    assert path.endswith("/waltzclusters/x/status")
    assert json.loads(sent) == {"status": {"message": "m"}}


async def test_get_of_a_missing_object_is_none_and_find_of_an_unknown_kind_is_empty(
    kube: ApiServer, recorder: Recorder
) -> None:
    recorder.status = 404
    assert await kube.get("Pod", "logs", "x") is None
    assert await kube.find("Certificate", "logs", {}) == []


async def test_refused_request_raises_kube_error_with_the_servers_message(
    kube: ApiServer, recorder: Recorder
) -> None:
    recorder.answer = {"message": "spec.partitions: Invalid value"}
    recorder.status = 422
    with pytest.raises(KubeError, match="Invalid value"):
        await kube.apply({"kind": "Pod", "metadata": {"name": "x", "namespace": "logs"}})
    recorder.status = 409
    with pytest.raises(Conflict):
        await kube.create({"kind": "Pod", "metadata": {"name": "x", "namespace": "logs"}})


async def test_answer_that_is_not_json_raises_kube_error(
    kube: ApiServer, recorder: Recorder
) -> None:
    recorder.text = "<html>a proxy's page</html>"
    with pytest.raises(KubeError, match="is not JSON"):
        await kube.get("Lease", "ops", "waltz-operator")


async def test_unreachable_server_raises_kube_error() -> None:
    async with ClientSession() as session:
        with pytest.raises(KubeError):
            await ApiServer(session, credentials_of("http://127.0.0.1:9")).get("Pod", "logs", "x")


async def test_changes_yields_every_object_of_the_watch(
    kube: ApiServer, recorder: Recorder
) -> None:
    recorder.answer = [{"metadata": {"name": name}} for name in "ab"]
    names = [each["metadata"]["name"] async for each in kube.changes("Pod", "", {"a": "1"})]
    assert names == ["a", "b"]
    assert recorder.requests[0].path == "/api/v1/pods"


async def test_changes_yields_an_object_of_more_than_a_mebibyte(
    kube: ApiServer, recorder: Recorder
) -> None:
    large = {"metadata": {"name": "x", "annotations": {"note": "n" * (1 << 20)}}}
    recorder.answer = [large, {"metadata": {"name": "y"}}]
    seen = [each async for each in kube.changes("Pod", "logs", {})]
    assert seen == recorder.answer


@pytest.mark.parametrize("event", ["{}", "[]", '{"object": null}', "no JSON"])
async def test_malformed_event_of_a_watch_raises_kube_error(
    kube: ApiServer, recorder: Recorder, event: str
) -> None:
    recorder.watched = f"{event}\n"
    with pytest.raises(KubeError, match=f"^watch of {_PODS}: "):
        [each async for each in kube.changes("Pod", "logs", {})]


@pytest.mark.parametrize("status", [403, 410, 429, 503])
async def test_refused_watch_raises_kube_error(
    kube: ApiServer, recorder: Recorder, status: int
) -> None:
    recorder.status = status
    changes = kube.changes("Deployment", "", {})
    with pytest.raises(KubeError, match=str(status)):
        await anext(changes)


class Counted(Collector):
    """One counter."""

    def collect(self) -> list[Metric]:
        return [CounterMetricFamily("waltz_x_total", "what", 2)]


async def test_http_serves_health_and_metrics() -> None:
    problem: list[str] = []
    async with (
        serve_http("127.0.0.1", 0, lambda: problem[0] if problem else None, Counted()) as port,
        ClientSession(f"http://127.0.0.1:{port}") as client,
    ):
        answer = await client.get("/healthz")
        assert answer.status == 200
        problem.append("unhealthy")
        answer = await client.get("/healthz")
        assert answer.status == 503
        answer = await client.get("/metrics")
        text = (await answer.read()).decode()
    assert text == "# HELP waltz_x_total what\n# TYPE waltz_x_total counter\nwaltz_x_total 2.0\n"
