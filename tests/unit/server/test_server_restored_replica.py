"""A replica whose disk was restored from a copy of the present store session, with one absent."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.support.memory_storages import PARTITION, MemoryStorage
from tests.support.replication_world import World, append
from waltz.metadata.core.formats import PartitionMetadata
from waltz.net.core.backoff import Backoff
from waltz.protocol.storage import TruncateRequest
from waltz_server.core.effects import BackoffOver, RetrySession, WriteMetadata
from waltz_server.core.limits import ReplicationLimits

NAMES = ("a", "b", "c")


def world() -> World:
    """Return a store with an open session on the storages `NAMES`."""
    made = World.of_store(
        ReplicationLimits(copy_records=2), Backoff(0.1, 0.1), map(MemoryStorage, NAMES)
    )
    made.core.set_generation(1)
    made.core.set_replicas(NAMES)
    made.connect()
    assert made.core.is_open
    return made


def pause(made: World) -> None:
    """Let all pauses of the server end, also those that begin meanwhile."""
    for _ in range(3):
        for timer in [wake.timer for wake in made.wakes]:
            if isinstance(timer, BackoffOver | RetrySession):
                made.wake(type(timer))


@st.composite
def appends(draw: st.DrawFn) -> list[tuple[str, ...]]:
    """For each append, draw the replicas whose answers are late: less than a quorum."""
    return draw(st.lists(st.sampled_from(((), ("a",), ("b",), ("c",))), min_size=1, max_size=6))


@given(appends(), st.permutations(NAMES), st.data())
def test_restored_replica_with_one_absent_loses_no_committed_append(
    late: list[tuple[str, ...]], names: list[str], data: st.DataObject
) -> None:
    restored, absent, third = names
    made = world()
    copied_before = data.draw(st.integers(0, len(late) - 1), "copied before")
    for number, held in enumerate(late):
        if number == copied_before:
            made.storages[restored].copy_disk()
        made.hold(*held)
        made.core.append([append(f"t{number}")])
        made.settle()
        if data.draw(st.booleans(), "the answers arrive"):
            made.release(*NAMES)
    committed = made.committed()
    made.storages[restored].restore()
    for name in data.draw(st.permutations((restored, absent)), "lost first"):
        made.cut(name)
    made.release(*NAMES)
    pause(made)
    made.connect(restored)
    made.core.append([append("after")])
    made.settle()
    pause(made)
    made.connect(absent)
    for _ in range(4):
        pause(made)
        made.connect(*NAMES)
    assert made.core.is_open
    for name in NAMES:
        held_texts = made.storages[name].texts
        assert [(n, held_texts[n]) for n, _ in committed] == committed, name
    assert third in made.active


def test_session_of_another_server_makes_the_acknowledged_ends_worthless() -> None:
    """That server may have cut the log before it failed, so a shorter log shows no loss."""
    made = world()
    made.hold("b", "c")
    made.core.append([append("one")])
    made.settle()
    assert made.storages["a"].last == 0
    made.metadata_held = True
    for name in NAMES:
        made.cut(name)
    # A session of another server, which has cut the log of a and did not open.
    between = made.metadata.session_id + 1
    made.storages["a"].handle(TruncateRequest(between, 0, PARTITION, -1))
    made.metadata = PartitionMetadata(1, between, made.metadata.replicas)
    made.metadata_held = False
    made.let_metadata()
    made.release(*NAMES)
    pause(made)
    made.connect("a", "b")
    assert made.core.is_open


def test_log_that_a_failed_session_has_cut_is_not_taken_for_a_loss() -> None:
    """The failed session found without a that its last append was not committed."""
    made = world()
    made.hold("b", "c")
    made.core.append([append("one")])
    made.settle()
    for name in NAMES:
        made.cut(name)
    pause(made)
    made.connect("b", "c")
    for name in ("b", "c"):
        made.let_one(name)  # its session
        made.let_one(name)  # its last id
    made.connect("a")
    assert made.storages["a"].last == -1
    for name in NAMES:
        made.cut(name)
    made.release("b", "c")
    pause(made)
    made.connect("a", "b")
    assert made.core.is_open


@pytest.mark.parametrize("how", ["write_in_doubt", "generation_changes"])
def test_no_session_opens_without_a_committed_append_after(how: str) -> None:
    """The id of a session of this server is in ZooKeeper, but the session has not begun here."""
    made = world()
    made.storages["b"].copy_disk()
    made.hold("c")
    made.core.append([append("two")])
    made.settle()
    assert made.committed() == [(0, "two")]
    made.metadata_held = True
    made.storages["b"].restore()
    for name in NAMES:
        made.cut(name)
    made.release("c")
    while not isinstance(made.metadata_orders[0], WriteMetadata):
        made.let_metadata()
    if how == "write_in_doubt":
        order = made.metadata_orders.popleft()
        assert isinstance(order, WriteMetadata)
        made.metadata, made.version = order.value, made.version + 1
        made.store.metadata_failed(order, "the connection is lost")
        made.settle()
    else:
        made.core.set_generation(2)
        made.let_metadata()
    made.metadata_held = False
    while made.metadata_orders:
        made.let_metadata()
    pause(made)
    made.connect("b", "c")
    pause(made)
    assert not made.core.is_open
    made.connect("a")
    pause(made)
    assert made.core.is_open
    assert made.core.high_water_mark == 0
