"""Test the outside addresses of a cluster: their form in ZooKeeper, reading, and changing."""

from __future__ import annotations

import asyncio
import contextlib
import json
import logging
import uuid

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.support.eventually import eventually
from waltz.admin.rescue import back_up, restore_cluster
from waltz.metadata.cluster import Cluster
from waltz.metadata.core.codec import MalformedMetadata
from waltz.metadata.core.outside_addresses import OutsideAddresses
from waltz.metadata.core.storage_maps import ChangeRefused
from waltz.metadata.lifecycle import create_cluster, delete_cluster
from waltz.metadata.outside import (
    change_outside_addresses,
    delete_outside_addresses,
    follow_outside_addresses,
    read_outside_addresses,
)
from waltz.metadata.store import NodeMissing
from waltz.testing.zookeeper import MemoryZooKeeper

ROOT = "/test"
PATH = f"{ROOT}/outside"
A, B, LB, OTHER_LB = "10.0.0.1:55180", "[fd00::1]:55280", "lb.example:31000", "203.0.113.7:31001"

_HOSTS = st.one_of(
    st.from_regex(r"[a-z0-9_][a-z0-9.\-_]{0,40}", fullmatch=True),
    st.ip_addresses(v=4).map(str),
    st.ip_addresses(v=6).map("[{}]".format),
    st.just("höst-世"),
)
_ADDRESSES = st.builds("{}:{}".format, _HOSTS, st.integers(1, 65_535))


@pytest.fixture
def zookeeper() -> MemoryZooKeeper:
    return MemoryZooKeeper()


@pytest.fixture
async def cluster(zookeeper: MemoryZooKeeper) -> Cluster:
    store = zookeeper.connect()
    await create_cluster(store, ROOT, "test", 3, key=uuid.UUID(int=1))
    return Cluster(store, ROOT)


async def stored(cluster: Cluster) -> OutsideAddresses | None:
    read = await read_outside_addresses(cluster)
    return None if read is None else read.value


async def set_outside(cluster: Cluster, addresses: dict[str, str]) -> None:
    await change_outside_addresses(cluster, lambda present: present.with_addresses(addresses))


@given(st.dictionaries(_ADDRESSES, _ADDRESSES, max_size=10))
def test_outside_addresses_are_decoded_as_encoded(addresses: dict[str, str]) -> None:
    value = OutsideAddresses(addresses)
    assert OutsideAddresses.decode(value.encode()) == value
    # A process of another version may add keys.
    fields = json.loads(value.encode())
    assert fields == {"format": 1, "addresses": addresses}
    assert OutsideAddresses.decode(json.dumps(fields | {"new": [1]}).encode()) == value


@given(st.dictionaries(_ADDRESSES, _ADDRESSES, max_size=5), st.dictionaries(_ADDRESSES, _ADDRESSES))
def test_outside_addresses_that_were_set_are_found_until_they_are_removed(
    before: dict[str, str], new: dict[str, str]
) -> None:
    value = OutsideAddresses(before).with_addresses(new)
    assert {address: value.outside_of(address) for address in before | new} == before | new
    kept = value.without(new)
    assert kept.addresses == {a: outside for a, outside in before.items() if a not in new}
    assert kept.without(["unknown:1"]) == kept


@given(st.binary(max_size=200))
def test_outside_addresses_of_any_bytes_are_decoded_or_refused_by_a_clear_error(
    data: bytes,
) -> None:
    with contextlib.suppress(MalformedMetadata):
        OutsideAddresses.decode(data)


@pytest.mark.parametrize(
    ("data", "reason"),
    [
        (b"", "Expecting value"),
        (b"{", "Expecting"),
        (b"[]", "indices"),
        (b"\xff", "decode"),
        (b"[" * 100_000, "recursion"),
        (b'{"format": 2, "addresses": {}}', "format 2 is not 1"),
        (b'{"addresses": {}}', "it has no 'format'"),
        (b'{"format": 1}', "it has no 'addresses'"),
        (b'{"format": 1, "addresses": []}', "items"),
        (b'{"format": 1, "addresses": {"a:1": 1}}', "1 is not a text"),
        (b'{"format": 1, "addresses": {"a:1": null}}', "None is not a text"),
        (b'{"format": 1, "addresses": {"a:1": "lb"}}', "'lb' cannot be the outside address of a:1"),
        (b'{"format": 1, "addresses": {"a:1": "lb:0"}}', "port from 1 to 65535"),
        (b'{"format": 1, "addresses": {"a:1": "lb:65536"}}', "port from 1 to 65535"),
        (b'{"format": 1, "addresses": {"a:1": ":1"}}', "host:port"),
        (b'{"format": 1, "addresses": {"a:1": "l b:1"}}', "a blank or a slash"),
        (b'{"format": 1, "addresses": {"a:1": "tcp://lb:1"}}', "a blank or a slash"),
        (b'{"format": 1, "addresses": {"a:1": "fd00::1:1"}}', "IPv6 address is in brackets"),
        (b'{"format": 1, "addresses": {"a": "lb:1"}}', "'a' cannot be a registered address"),
    ],
)
async def test_malformed_outside_addresses_are_an_error_that_names_the_znode_and_the_reason(
    cluster: Cluster, data: bytes, reason: str
) -> None:
    await cluster.store.create(PATH, data)
    with pytest.raises(MalformedMetadata, match=reason) as raised:
        await read_outside_addresses(cluster)
    assert f"OutsideAddresses at {PATH} in ZooKeeper" in str(raised.value)
    with pytest.raises(MalformedMetadata):
        await set_outside(cluster, {A: LB})
    node = await cluster.store.get(PATH)
    assert node is not None
    assert node.data == data, "data of a newer version are kept"


async def test_outside_addresses_of_a_new_cluster_are_missing(cluster: Cluster) -> None:
    assert await stored(cluster) is None
    assert not await delete_outside_addresses(cluster)


async def test_outside_addresses_are_changed_and_deleted(cluster: Cluster) -> None:
    await set_outside(cluster, {A: LB})
    await set_outside(cluster, {A: OTHER_LB, B: LB})
    assert await stored(cluster) == OutsideAddresses({A: OTHER_LB, B: LB})
    await change_outside_addresses(cluster, lambda present: present.without([A]))
    assert await stored(cluster) == OutsideAddresses({B: LB})
    assert await delete_outside_addresses(cluster)
    assert await stored(cluster) is None


async def test_outside_addresses_that_stay_equal_are_not_written(cluster: Cluster) -> None:
    await change_outside_addresses(cluster, lambda present: present.without([A]))
    assert await stored(cluster) is None
    await set_outside(cluster, {A: LB})
    await set_outside(cluster, {A: LB})
    node = await cluster.store.get(PATH)
    assert node is not None
    assert node.version == 0


async def test_outside_address_that_is_malformed_changes_nothing(cluster: Cluster) -> None:
    await set_outside(cluster, {A: LB})
    with pytest.raises(ChangeRefused, match="'lb' cannot be the outside address"):
        await set_outside(cluster, {B: "lb"})
    assert await stored(cluster) == OutsideAddresses({A: LB})


async def test_outside_addresses_need_a_cluster() -> None:
    with pytest.raises(NodeMissing):
        await set_outside(Cluster(MemoryZooKeeper().connect(), ROOT), {A: LB})


@pytest.mark.parametrize("exists", [False, True])
async def test_outside_addresses_of_two_writers_are_both_kept(
    zookeeper: MemoryZooKeeper, cluster: Cluster, exists: bool
) -> None:
    if exists:
        await set_outside(cluster, {"c:1": "c.example:1"})
    other = Cluster(zookeeper.connect(), ROOT)
    await asyncio.gather(set_outside(cluster, {A: LB}), set_outside(other, {B: OTHER_LB}))
    addresses = await stored(cluster)
    assert addresses is not None
    assert addresses.addresses.items() >= {A: LB, B: OTHER_LB}.items()


async def test_followed_outside_addresses_are_those_after_each_change(cluster: Cluster) -> None:
    seen: list[OutsideAddresses | None] = []

    async def follow() -> None:
        async for addresses in follow_outside_addresses(cluster):
            seen.append(addresses)

    task = asyncio.create_task(follow())
    try:
        await eventually(lambda: seen == [None])
        await set_outside(cluster, {A: LB})
        await eventually(lambda: seen[-1] == OutsideAddresses({A: LB}))
        await set_outside(cluster, {A: OTHER_LB})
        await eventually(lambda: seen[-1] == OutsideAddresses({A: OTHER_LB}))
        await delete_outside_addresses(cluster)
        await eventually(lambda: seen[-1] is None)
    finally:
        task.cancel()


async def test_followed_outside_addresses_that_become_malformed_are_logged_and_left_out(
    cluster: Cluster, caplog: pytest.LogCaptureFixture
) -> None:
    seen: list[OutsideAddresses | None] = []

    async def follow() -> None:
        async for addresses in follow_outside_addresses(cluster):
            seen.append(addresses)

    await set_outside(cluster, {A: LB})
    task = asyncio.create_task(follow())
    try:
        await eventually(lambda: len(seen) == 1)
        await cluster.store.set(PATH, b"{}", -1)
        await eventually(lambda: any(each.levelno == logging.ERROR for each in caplog.records))
        assert "keeping the previous ones" in caplog.text
        await cluster.store.set(PATH, OutsideAddresses({B: LB}).encode(), -1)
        await eventually(lambda: seen == [OutsideAddresses({A: LB}), OutsideAddresses({B: LB})])
    finally:
        task.cancel()


@pytest.mark.parametrize("executed", [True, False])
@pytest.mark.parametrize("exists", [False, True])
async def test_outside_addresses_whose_write_lost_its_answer_are_written_once(
    zookeeper: MemoryZooKeeper, cluster: Cluster, executed: bool, exists: bool
) -> None:
    if exists:
        await set_outside(cluster, {B: OTHER_LB})
    store = zookeeper.connect()
    store.lose_next_write(executed=executed)
    await set_outside(Cluster(store, ROOT), {A: LB})
    assert await stored(cluster) == OutsideAddresses({A: LB} | ({B: OTHER_LB} if exists else {}))
    node = await cluster.store.get(PATH)
    assert node is not None
    assert node.version == int(exists)


async def test_outside_addresses_are_in_the_backup_and_deleted_with_the_cluster(
    cluster: Cluster,
) -> None:
    await set_outside(cluster, {A: LB})
    backup = await back_up(cluster)
    assert backup.outside == OutsideAddresses({A: LB})
    await delete_cluster(cluster.store, ROOT, "test")
    assert await cluster.store.get(PATH) is None
    await restore_cluster(cluster, backup)
    assert await stored(cluster) == backup.outside


async def test_backup_is_made_without_malformed_outside_addresses(cluster: Cluster) -> None:
    await cluster.store.create(PATH, b"x")
    assert (await back_up(cluster)).outside is None
