"""Test how a client finds the outcome of an append that raised AppendUncertain."""

from __future__ import annotations

import asyncio

import pytest

from tests.support.client_cluster import ClientCluster, connected
from tests.support.eventually import eventually
from tests.support.virtual_time import on_virtual_time
from waltz.cli.log.rows import render_find
from waltz.client import (
    Absent,
    AnswerLate,
    Appended,
    AppendUncertain,
    Client,
    ClientAhead,
    Transaction,
)
from waltz.client.core.append_search import AppendSearch
from waltz.protocol import ReqId
from waltz.protocol.client_server import AppendRequest, FlushRequest

WANTED = ReqId(17, 3, 0, 42)


def transaction(number: int, client_id: int, generation: int, seq: int) -> Transaction[None]:
    return Transaction(0, number, ReqId(client_id, generation, 0, seq), 0, None)


async def uncertain_append(cluster: ClientCluster, client: Client) -> ReqId:
    """Append with a request that is held; return its request id."""
    await client.mount(0)
    cluster.holding = (AppendRequest, FlushRequest)
    with pytest.raises(AppendUncertain) as caught:
        await client.append(0, b"uncertain", timeout=0.05)
    return caught.value.req_id


@pytest.mark.parametrize(
    ("later", "result"),
    [
        ((17, 3, 42), Appended(5)),
        ((17, 3, 43), Absent()),
        ((18, 4, 0), Absent()),
        ((17, 3, 41), None),
        ((17, 2, 43), None),
        ((18, 3, 43), None),
    ],
)
def test_search_result_follows_from_a_later_transaction(
    later: tuple[int, int, int], result: Appended | Absent | None
) -> None:
    search = AppendSearch(WANTED)
    assert not search.examine([transaction(4, 17, 3, 40)])
    assert search.examine([transaction(5, *later)]) is (result is not None)
    assert search.result == result


def test_search_compares_sequence_numbers_that_wrap() -> None:
    search = AppendSearch(ReqId(17, 3, 0, (1 << 31) - 1))
    assert search.examine([transaction(5, 17, 3, -(1 << 31))])
    assert search.result == Absent()


@on_virtual_time
async def test_outcome_waits_for_a_late_append_and_is_appended() -> None:
    async with connected(count=3) as (cluster, client):
        req_id = await uncertain_append(cluster, client)
        finding = asyncio.ensure_future(client.outcome(req_id))
        await eventually(lambda: any(isinstance(m, FlushRequest) for m in cluster.held))
        assert not finding.done()
        cluster.holding = ()
        cluster.release()
        assert await finding == Appended(3)
        assert await client.outcome(req_id, after=2) == Appended(3)


@on_virtual_time
async def test_outcome_of_an_append_that_was_lost_is_absent() -> None:
    async with connected(count=3) as (cluster, client):
        req_id = await uncertain_append(cluster, client)
        cluster.holding = ()
        assert cluster.cut_clients()
        assert await client.outcome(req_id) == Absent()
        assert len(cluster.transactions(0)) == 3


@on_virtual_time
async def test_outcome_at_another_client_is_unknown_until_the_append_arrives() -> None:
    async with connected(count=3) as (cluster, client):
        req_id = await uncertain_append(cluster, client)
        async with cluster.connect() as other:
            assert await other.outcome(req_id) is None
            cluster.holding = ()
            cluster.release()
            await eventually(lambda: len(cluster.transactions(0)) == 4)
            assert await other.outcome(req_id) == Appended(3)


@on_virtual_time
async def test_outcome_after_a_transaction_beyond_the_log_is_an_error() -> None:
    """ABSENT would let the application append again what the log may have before this position."""
    async with connected(count=3) as (cluster, client):
        req_id = await uncertain_append(cluster, client)
        cluster.holding = ()
        cluster.release()
        await eventually(lambda: len(cluster.transactions(0)) == 4)
        with pytest.raises(ClientAhead):
            await client.outcome(req_id, after=100)


@on_virtual_time
async def test_outcome_that_is_not_found_in_time_is_an_error() -> None:
    async with connected() as (cluster, client):
        req_id = await uncertain_append(cluster, client)
        with pytest.raises(AnswerLate, match=f"the outcome of append {req_id} was not found"):
            await client.outcome(req_id, timeout=0.2)


def test_request_id_is_read_from_its_text() -> None:
    req_id = ReqId(17, 3, 0, -42)
    assert str(req_id) == "17:3:0:-42"
    assert ReqId.parse(str(req_id)) == req_id
    for text in ("17:3:0", "17:3:0:x", "", "17:3:0:4:2"):
        with pytest.raises(
            ValueError, match=r"is not a request id: that is 17:3:0:42, for example"
        ):
            ReqId.parse(text)


@pytest.mark.parametrize(
    ("found", "outcome", "number"),
    [(Appended(5), "appended", 5), (Absent(), "absent", None), (None, "unknown", None)],
)
def test_found_append_is_shown_with_its_outcome(
    found: Appended | Absent | None, outcome: str, number: int | None
) -> None:
    shown = {"request_id": "17:3:0:42", "partition": 0, "outcome": outcome, "id": number}
    assert render_find(WANTED, found).value == shown


@on_virtual_time
async def test_outcome_asks_the_server_at_once() -> None:
    """Without a request for the outcome, the client would ask after `long_wait_seconds`."""
    async with connected() as (cluster, client):
        req_id = await uncertain_append(cluster, client)
        assert not cluster.requests_of(FlushRequest)
        finding = asyncio.ensure_future(client.outcome(req_id, timeout=60))
        await asyncio.sleep(0.1)
        assert cluster.requests_of(FlushRequest)
        cluster.holding = ()
        cluster.release()
        assert await finding == Appended(0)
