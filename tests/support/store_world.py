"""Define a partition's store over three storages in memory, for tests of the store.

The store is the part of a server's partition that opens store sessions and replicates appends:
``world.core`` is a `StorePartition`.
"""

from __future__ import annotations

from tests.support.memory_storages import MemoryStorage
from tests.support.replication_world import World, append
from waltz.net.core.backoff import Backoff
from waltz_server.core.appends.append import Append
from waltz_server.core.effects import BackoffOver, RetrySession
from waltz_server.core.limits import ReplicationLimits

LIMITS = ReplicationLimits(batch_records=2, batches_in_flight=2, copy_records=20)
NAMES = ("a", "b", "c")


def new_world(limits: ReplicationLimits = LIMITS, names: tuple[str, ...] = NAMES) -> World:
    """Return a store that has no generation yet, and whose storages are not connected."""
    return World.of_store(limits, Backoff(0.1, 1.0), [MemoryStorage(name) for name in names])


def start(world: World, generation: int = 1) -> World:
    """Give the partition to the store; the storages are not connected yet."""
    world.core.set_generation(generation)
    world.core.set_replicas(world.storages)
    world.settle()
    return world


def opened(limits: ReplicationLimits = LIMITS, names: tuple[str, ...] = NAMES) -> World:
    """Return a store with an open session; its calls and events so far are forgotten."""
    world = start(new_world(limits, names))
    world.connect()
    assert world.core.is_open
    world.calls.clear()
    world.take_events()
    return world


def put(world: World, *texts: str, generation: int = 1) -> None:
    """Append transactions with these data, and let the storages answer."""
    world.core.append([append(text, generation=generation) for text in texts])
    world.settle()


def wake_any(world: World) -> None:
    """Let the first timer expire after which the store tries again to open a session."""
    timers = (wake.timer for wake in world.wakes)
    world.wake(next(type(each) for each in timers if isinstance(each, RetrySession | BackoffOver)))


def reopen(world: World) -> None:
    """Let timers expire until a session is open."""
    while not world.core.is_open:
        wake_any(world)


def everywhere(world: World) -> list[str]:
    """Return what all storages hold, which must be the same."""
    held = [storage.texts for storage in world.storages.values()]
    assert all(each == held[0] for each in held)
    return held[0]


def texts(appends: list[Append]) -> list[str]:
    """Return the data of appends."""
    # A record tail: the header and the length of the data, 4 bytes each, the data, a checksum.
    return [a.record_tail[8:-4].decode() for a in appends]


def kinds(world: World, name: str) -> list[str]:
    """Return the types of the requests that the storage ``name`` has answered."""
    return [type(request).__name__ for storage, request, _ in world.calls if storage == name]


def states(world: World) -> dict[str, tuple[int, int]]:
    """Return the session id and the closing mark of each replica in the metadata."""
    return {n: (s.session_id, s.closing_mark) for n, s in world.metadata.replicas.items()}
