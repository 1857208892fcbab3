"""Test batches of appends: a partition decides each at one instant and answers it once."""

from __future__ import annotations

import pytest

from tests.support.partition_world import (
    NAMES,
    flush,
    log_of,
    mount,
    new_world,
    opened,
    put,
    take_messages,
)
from tests.support.replication_world import World, append
from waltz.metadata.core.formats import UNRESOLVED, PartitionMetadata, ReplicaState
from waltz.protocol import ReqId
from waltz.protocol import client_server as cs
from waltz.protocol.batches import BatchedOutcome, OutcomeKind
from waltz_server.core.appends.append import Append
from waltz_server.core.appends.append_batches import AppendBatch
from waltz_server.core.peer import Peer

ABSENT, UNKNOWN = BatchedOutcome(OutcomeKind.ABSENT), BatchedOutcome(OutcomeKind.UNKNOWN)


def committed(transaction_id: int) -> BatchedOutcome:
    return BatchedOutcome(OutcomeKind.COMMITTED, transaction_id)


def refused(transaction_id: int) -> BatchedOutcome:
    return BatchedOutcome(OutcomeKind.REFUSED, transaction_id)


def mounted(world: World, client: int, mark: int = -1, *, generation: int = 1) -> Peer:
    peer = mount(world, client, mark, generation=generation, peer=Peer(5))
    assert take_messages(world, peer)[-1].state is cs.MountState.READY
    return peer


def put_batch(world: World, peer: Peer, *appends: Append, generation: int = 1) -> None:
    client = appends[0].client_id if appends else 1
    world.core.append_batch(AppendBatch(peer, ReqId(client, generation, 0, 7), appends))
    world.settle()


def answers(world: World, peer: Peer) -> list[tuple[BatchedOutcome, ...]]:
    return [m.outcomes for m in take_messages(world, peer) if isinstance(m, cs.AppendBatchResponse)]


def test_batch_is_logged_in_order_and_answered_once() -> None:
    world = opened()
    peer = mounted(world, 1)
    put_batch(world, peer, append("0"), append("1"), append("2"))
    (answer,) = (m for m in take_messages(world, peer) if isinstance(m, cs.AppendBatchResponse))
    assert answer == cs.AppendBatchResponse(
        ReqId(1, 1, 0, 7), (committed(0), committed(1), committed(2))
    )
    assert log_of(world) == ["0", "1", "2"]
    assert world.core.open_appends == 0


def test_batch_answer_waits_for_the_last_append() -> None:
    world = opened()
    peer = mounted(world, 1)
    world.hold(*NAMES)
    put(world, peer, append("before", write=(7,)))
    put_batch(world, peer, append("0"), append("late", write=(7,)), append("2"))
    assert answers(world, peer) == []
    world.release(*NAMES)
    assert answers(world, peer) == [(committed(1), refused(0), committed(2))]
    assert log_of(world) == ["before", "0", "2"]


def test_appends_of_one_batch_do_not_conflict() -> None:
    world = opened()
    peer = mounted(world, 1)
    put_batch(
        world,
        peer,
        append("0", write=(7,)),
        append("1", write=(7,)),
        append("2", read=(7,)),
        append("3", lock_only=(7,)),
    )
    assert answers(world, peer) == [tuple(committed(n) for n in range(4))]
    put_batch(world, peer, append("late", write=(7,), mark=2), append("seen", write=(7,), mark=3))
    assert answers(world, peer) == [(refused(3), committed(4))]


def test_refused_append_of_a_batch_does_not_refuse_the_others() -> None:
    world = opened()
    one, two = mounted(world, 1), mounted(world, 2)
    put(world, one, append("0", write=(7,)))
    put_batch(
        world,
        two,
        append("1", client=2, write=(8,)),
        append("late", client=2, write=(7, 9)),
        append("2", client=2, write=(10,)),
    )
    assert answers(world, two) == [(committed(1), refused(0), committed(2))]
    put(world, one, append("3", write=(9,), mark=0))
    assert log_of(world) == ["0", "1", "2", "3"]


def test_batch_waits_as_a_whole_for_open_locks() -> None:
    """If they were decided one by one, the first would be committed before the lock is free."""
    world = opened()
    one, two = mounted(world, 1), mounted(world, 2)
    world.hold(*NAMES)
    put(world, one, append("holder", write=(7,)))
    put_batch(world, two, append("free", client=2), append("wants", client=2, lock_only=(7,)))
    put(world, one, append("behind", write=(8,)))
    assert world.core.open_appends == 4
    world.release(*NAMES)
    assert log_of(world) == ["holder", "behind", "free", "wants"]
    assert answers(world, two) == [(committed(2), committed(3))]


def test_only_appends_with_its_locks_wait_behind_a_waiting_batch() -> None:
    world = opened()
    peers = {client: mounted(world, client) for client in (1, 2, 3)}
    world.hold(*NAMES)
    put(world, peers[1], append("holder", write=(7,)))
    put_batch(
        world,
        peers[2],
        append("batched", client=2, lock_only=(7,)),
        append("batched too", client=2, lock_only=(8,)),
    )
    put(world, peers[2], append("same client", client=2))
    put(world, peers[3], append("same lock", client=3, lock_only=(8,)))
    put(world, peers[3], append("behind its own", client=3))
    put(world, peers[1], append("free"))
    world.release(*NAMES)
    order = log_of(world)
    assert order[:2] == ["holder", "free"]
    assert order[2:4] == ["batched", "batched too"]
    assert sorted(order[4:]) == ["behind its own", "same client", "same lock"]


def test_batch_waits_behind_its_own_client_and_earlier_waiters_for_its_locks() -> None:
    world = opened()
    peers = {client: mounted(world, client) for client in (1, 2, 3)}
    world.hold(*NAMES)
    put(world, peers[1], append("holder", write=(7,)))
    put(world, peers[2], append("waits", client=2, lock_only=(7, 8)))
    put_batch(world, peers[2], append("same client", client=2))
    put_batch(world, peers[3], append("same lock", client=3, lock_only=(8,)))
    world.release(*NAMES)
    assert log_of(world) == ["holder", "waits", "same client", "same lock"]


def test_flush_behind_a_waiting_batch_waits_for_it() -> None:
    world = opened()
    peer = mounted(world, 1)
    world.hold(*NAMES)
    put_batch(world, peer, append("0", write=(7,)))
    put_batch(world, peer, append("1", lock_only=(7,)))
    flush(world, peer, 1)
    assert take_messages(world, peer) == []
    world.release(*NAMES)
    kinds = [type(m).__name__ for m in take_messages(world, peer)]
    assert kinds == ["AppendBatchResponse", "AppendBatchResponse", "FlushResponse"]


@pytest.mark.parametrize("generation", [0, 2])
def test_batch_of_another_generation_is_absent(generation: int) -> None:
    world = opened()
    peer = mounted(world, 1)
    batch = [append(f"{n}", generation=generation) for n in range(3)]
    put_batch(world, peer, *batch, generation=generation)
    assert answers(world, peer) == [(ABSENT,) * 3]
    assert log_of(world) == []


def test_batch_of_a_stale_connection_is_absent() -> None:
    world = opened()
    stranger, old = Peer(5), mounted(world, 1)
    mount(world, 1, seq=1, peer=Peer(5))
    for peer in (stranger, old):
        put_batch(world, peer, append("0"))
        assert answers(world, peer) == [(ABSENT,)]
    assert log_of(world) == []


def test_new_generation_fails_waiting_batches_and_leaves_sent_ones_open() -> None:
    world = opened()
    peer, other = mounted(world, 1), mounted(world, 2)
    world.hold(*NAMES)
    put_batch(world, peer, append("sent", write=(7,)), append("sent too"))
    put_batch(world, other, append("waits", client=2, write=(7,)))
    world.core.set_generation(2)
    world.settle()
    assert answers(world, other) == [(ABSENT,)]
    assert answers(world, peer) == []
    world.release(*NAMES)
    assert answers(world, peer) == [(UNKNOWN, UNKNOWN)]
    assert world.core.open_appends == 0


def test_batch_in_the_log_after_a_fault_is_a_prefix() -> None:
    world = opened()
    peer = mounted(world, 1)
    world.hold(*NAMES)
    put_batch(world, peer, *(append(f"{n}") for n in range(1200)))
    for name in "ab":
        world.storages[name].handle(world.waiting(name)[0])
    for name in NAMES:
        world.cut(name)
    world.held.clear()
    world.connect()
    while not world.core.store.is_open:
        world.wake(type(next(w.timer for w in world.wakes)))
    (outcomes,) = answers(world, peer)
    batches = [o.kind for o in outcomes]
    done = batches.count(OutcomeKind.COMMITTED)
    assert 0 < done < 1200
    assert outcomes == (*(committed(n) for n in range(done)), *(ABSENT,) * (1200 - done))
    assert log_of(world) == [f"{n}" for n in range(done)]


def test_batch_before_the_first_session_waits_for_it() -> None:
    world = new_world(last=2)
    peer = mount(world, 1, 2, peer=Peer(5))
    put_batch(world, peer, append("3", mark=2, write=(7,)), append("late", mark=1, write=(7,)))
    assert answers(world, peer) == []
    world.connect()
    assert answers(world, peer) == [(committed(3), refused(2))]


def test_close_answers_open_batches_with_unknown_outcomes() -> None:
    world = opened()
    peer = mounted(world, 1)
    world.hold(*NAMES)
    put_batch(world, peer, append("0"), append("1"))
    world.core.close()
    world.settle()
    assert answers(world, peer) == [(UNKNOWN, UNKNOWN)]
    world.release(*NAMES)
    assert answers(world, peer) == []


def test_batch_is_checked_against_locks_of_another_owner() -> None:
    world = opened()
    mounted(world, 1)
    world.metadata = PartitionMetadata(2, 1, dict.fromkeys(NAMES, ReplicaState(1, UNRESOLVED)))
    world.version += 1
    for storage in world.storages.values():
        storage.serve_former_server(1, "others took lock 7")
    world.core.set_generation(3)
    world.settle()
    peer = mounted(world, 1, generation=3)
    put_batch(world, peer, append("late", generation=3, write=(7,)), generation=3)
    assert answers(world, peer) == [(refused(0),)]


def test_counters_include_appends_of_batches() -> None:
    world = opened()
    peer = mounted(world, 1)
    put(world, peer, append("0", write=(7,)))
    put_batch(world, peer, append("1"), append("late", write=(7,)))
    counters = world.core.counters
    assert (counters.accepted, counters.committed, counters.refused) == (3, 2, 1)
