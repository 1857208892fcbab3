"""Dialogues with a server, a storage and an administration port, against running processes.

The cluster key, the names of storages, the generation and the session differ between runs; the
tests adapt them. Of error texts only the class is compared, of metrics only the kinds. The versions
in a Hello must include those of the vectors. A silence is shorter here than in the vectors.
"""

from __future__ import annotations

import asyncio
import itertools
import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

import waltz
from tests.support.replicas import replicas_agree
from waltz.admin import StorageAdmin
from waltz.local import LocalCluster, Shape
from waltz.protocol import RecordBatch, admin, client_server, storage
from waltz.protocol.failures import RpcFailure
from waltz.protocol.frames import HEAD_BYTES, decode_hello

Step = Mapping[str, Any]
Case = Mapping[str, Any]

SILENCE_S = 0.3
ANSWER_S = 10.0

MODULES: Mapping[str, ModuleType] = {"L": client_server, "S": storage, "A": admin}
TEXT_OF_FAILURE = {("S", 8): 1 + 8 + 8 + 4, ("A", 2): 1 + 8}
"""By protocol and type, where the text of a failure begins in its body."""

REQUESTED_TOO_EARLY = (
    "client-server V4: transaction data asked for too early",
    "client-server V4: data requested before the transaction exists",
)
"""0.13.2 remembers that the id did not exist: a defect. The second name is that of our vectors."""
NEVER_ASSIGNED = (
    "storage-admin V0: unassign a partition that has no object",
    "storage-admin V0: unassign a partition that is not assigned",
)


@dataclass(frozen=True)
class Run:
    """The differences between the run of the vectors and this one."""

    cluster: LocalCluster
    recorded_key: Any
    key: Any
    generation_shift: int
    session_shift: int

    def adapt(self, message: Any) -> Any:
        """Return a message of the vectors as it is in this run."""
        fields: dict[str, Any] = {}
        if getattr(message, "key", None) == self.recorded_key:
            fields["key"] = self.key
        if hasattr(message, "req_id") and self.has(message.req_id.partition):
            fields["req_id"] = self._request(message.req_id)
        for name in ("session_id", "last_session_id"):
            if getattr(message, name, -1) >= 0:
                fields[name] = getattr(message, name) + self.session_shift
        if isinstance(getattr(message, "records", None), RecordBatch):
            records = (replace(r, req_id=self._request(r.req_id)) for r in message.records)
            fields["records"] = RecordBatch.of(records)
        if isinstance(message, client_server.HeadersResponse):
            fields["headers"] = tuple(
                replace(h, req_id=self._request(h.req_id)) for h in message.headers
            )
        if isinstance(message, client_server.AppendAnswers):
            fields["answers"] = tuple(
                each._replace(generation=each.generation + self.generation_shift)
                for each in message.answers
            )
        return replace(message, **fields)

    def has(self, partition: int) -> bool:
        return 0 <= partition < self.cluster.plan.shape.partitions

    def _request(self, req_id: waltz.ReqId) -> waltz.ReqId:
        if req_id.generation == 0:
            return req_id
        return replace(req_id, generation=req_id.generation + self.generation_shift)


@pytest.fixture(scope="module")
def cases(vectors: Path) -> list[Case]:
    loaded: list[Case] = json.loads((vectors / "transcripts.json").read_text())
    return loaded


@pytest.fixture(scope="module")
def cluster(cases: list[Case], tmp_path_factory: pytest.TempPathFactory) -> Iterator[LocalCluster]:
    opened = next(message for message, accepted in opens(cases) if accepted)
    shape = Shape(partitions=opened.num_partitions, storages=3, servers=1)
    running = LocalCluster(tmp_path_factory.mktemp("transcripts"), shape)
    asyncio.run(running.start())
    yield running
    asyncio.run(running.stop())


async def test_peers_answer_each_dialogue_as_in_the_vectors(
    cases: list[Case], cluster: LocalCluster
) -> None:
    """All run on one cluster, in order: each finds the log that those before it have left."""
    async with cluster.metadata() as metadata:
        params = await metadata.store_params()
        assigned = (await metadata.partition_assignment()).value
        session = (await metadata.partition_metadata(0)).value.session_id
    (owned,) = assigned.servers.values()
    generation = dict(owned)[0]
    recorded_key = next(message.key for message, accepted in opens(cases) if accepted)
    run = Run(cluster, recorded_key, params.key, generation - 1, session)
    for case in cases:
        await prepare(case, run)
        port = port_of(case, cluster)
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        try:
            await play(case, run, reader, writer)
        finally:
            writer.close()


async def prepare(case: Case, run: Run) -> None:
    """Put the cluster into the state that a dialogue begins with."""
    cluster = run.cluster
    await replicas_agree(cluster, ANSWER_S)
    if case["name"] in REQUESTED_TOO_EARLY:
        partition = case["partition"]
        mark = next(
            m.transaction_id
            for m in messages(case)
            if isinstance(m, client_server.HighWaterMarkResponse)
        )
        opened = waltz.connect(cluster.zookeeper, root=cluster.root, tls=waltz.PLAINTEXT)
        async with opened as client:
            while await client.high_water_mark(partition) < mark:
                await client.append(partition, b"earlier")
    if case["name"] in NEVER_ASSIGNED:
        request = next(messages(case))
        ports = cluster.plan.storages[0]
        async with cluster.metadata() as metadata:
            params = await metadata.store_params()
        opened_admin = StorageAdmin.open(ports.address, ports.admin, cluster.tls, params)
        async with await opened_admin as port:
            await port.unassign(request.partitions)


async def play(
    case: Case, run: Run, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
) -> None:
    for step in case["steps"]:
        where = f"{case['name']}: {step['note']}"
        match step:
            case {"tls": _}:
                continue
            case {"dir": "to-reference"}:
                writer.write(adapted(frame_of(step), run))
            case {"closed": True}:
                async with asyncio.timeout(ANSWER_S):
                    assert await reader.read(1) == b"", where
            case {"silence_ms": _}:
                with pytest.raises(TimeoutError):
                    async with asyncio.timeout(SILENCE_S):
                        pytest.fail(f"{where}: {await reader.read(100)!r}")
            case _:
                try:
                    async with asyncio.timeout(ANSWER_S):
                        answer = await read_frame(reader)
                except (TimeoutError, asyncio.IncompleteReadError) as problem:
                    pytest.fail(f"{where}: {problem!r}")
                compare(step, answer, run, where)


def compare(step: Step, answer: bytes, run: Run, where: str) -> None:
    recorded = frame_of(step)
    assert answer[:1] == recorded[:1], where
    if recorded[:1] == b"H":
        versions, text = decode_hello(recorded[HEAD_BYTES:])
        offered, peer_text = decode_hello(answer[HEAD_BYTES:])
        assert set(offered) >= set(versions), where
        assert peer_text == text, where
        return
    assert answer[1:3] == recorded[1:3], where
    found = decode(answer)
    if isinstance(found, admin.MetricsResponse):
        assert recorded[HEAD_BYTES] == answer[HEAD_BYTES], where
        assert {"gauges", "counters", "meters", "timers"} <= json.loads(found.json).keys()
        return
    if "defect" in step["note"]:
        # Here a transaction is found as soon as it exists.
        assert isinstance(found, client_server.TransactionDataResponse)
        assert found.data is not None, where
        return
    assert comparable(found) == comparable(run.adapt(decode(recorded))), where


def comparable(message: Any) -> tuple[Any, Any]:
    """Return a message without the field of which only a part is compared, and that part."""
    match message:
        case client_server.TransactionDataResponse(error=str() as error):
            return replace(message, error=None), error.partition(":")[0]
        case storage.FailureResponse() | admin.AdminFailureResponse():
            peer_text = message.failure.message or ""
            return replace(message, failure=RpcFailure(None)), peer_text.partition(":")[0]
        case client_server.CheckStorageConnectivityResponse():
            return replace(message, storages={}), sorted(message.storages.values())
        case client_server.ServerPartitionsAssignmentResponse():
            return replace(message, partitions=()), sorted(message.partitions)
        case _:
            return message, None


def opens(cases: Sequence[Case]) -> Iterator[tuple[Any, bool]]:
    """Yield every opening request with whether it was accepted."""
    for case in cases:
        steps = case["steps"]
        for step, answer in itertools.pairwise(steps):
            if step.get("dir") == "to-reference":
                message = decode(frame_of(step))
                if isinstance(message, storage.OpenRequest | admin.AdminOpenRequest):
                    given = decode(frame_of(answer))
                    accepted = storage.SuccessResponse | admin.AdminSuccessResponse
                    yield message, isinstance(given, accepted)


def messages(case: Case) -> Iterator[Any]:
    """Yield the messages of a dialogue, without Hellos and keep-alives."""
    for step in case["steps"]:
        if "hex" in step and (message := decode(frame_of(step))) is not None:
            yield message


def decode(frame: bytes) -> Any:
    """Return the message of a frame, None for a Hello, a keep-alive, or one that was cut short.

    Of a failure that was cut short only the stack trace is missing.
    """
    kind = frame[:1].decode()
    version, length = int.from_bytes(frame[1:3], "big"), int.from_bytes(frame[3:7], "big")
    body = frame[HEAD_BYTES:]
    if kind == "H" or not body:
        return None
    if len(body) < length:
        at = TEXT_OF_FAILURE.get((kind, body[0]))
        if at is None:
            return None
        end = at + 4 + int.from_bytes(body[at : at + 4], "big")
        body = body[:end] + bytes(4)
    return MODULES[kind].decode(body, version)


def frame_of(step: Step) -> bytes:
    """Return a recorded frame; long ones are cut short."""
    return bytes.fromhex(step["hex"].rstrip(".…"))


def adapted(frame: bytes, run: Run) -> bytes:
    message = decode(frame)
    if message is None:
        return frame
    version = int.from_bytes(frame[1:3], "big")
    encoded: bytes = MODULES[frame[:1].decode()].encode(run.adapt(message), version)
    return encoded


def port_of(case: Case, cluster: LocalCluster) -> int:
    name = case["name"]
    if name.startswith("client-server"):
        return cluster.plan.servers[0].port
    ports = cluster.plan.storages[0]
    return ports.admin if name.startswith("storage-admin") else ports.port


async def read_frame(reader: asyncio.StreamReader) -> bytes:
    head = await reader.readexactly(HEAD_BYTES)
    return head + await reader.readexactly(int.from_bytes(head[3:7], "big"))
