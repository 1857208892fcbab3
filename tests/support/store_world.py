"""Define a partition's store over three storages in memory, for tests of the store."""

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
    return World.of_store(limits, Backoff(0.1, 1.0), [MemoryStorage(name) for name in names])


def start(world: World, generation: int = 1) -> World:
    world.core.set_generation(generation)
    world.core.set_replicas(world.storages)
    world.settle()
    return world


def opened(limits: ReplicationLimits = LIMITS, names: tuple[str, ...] = NAMES) -> World:
    world = start(new_world(limits, names))
    world.connect()
    assert world.core.is_open
    world.calls.clear()
    world.take_events()
    return world


def put(world: World, *texts: str, generation: int = 1) -> None:
    world.core.append([append(text, generation=generation) for text in texts])
    world.settle()


def wake_any(world: World) -> None:
    due = (wake.timer for wake in world.wakes)
    world.wake(next(type(p) for p in due if isinstance(p, RetrySession | BackoffOver)))


def reopen(world: World) -> None:
    while not world.core.is_open:
        wake_any(world)


def everywhere(world: World) -> list[str]:
    """Return what all storages hold, which must be the same."""
    held = [storage.texts for storage in world.storages.values()]
    assert all(each == held[0] for each in held)
    return held[0]


def texts(appends: list[Append]) -> list[str]:
    return [a.record_tail[8:-4].decode() for a in appends]


def kinds(world: World, name: str) -> list[str]:
    return [type(request).__name__ for storage, request, _ in world.calls if storage == name]


def states(world: World) -> dict[str, tuple[int, int]]:
    return {n: (s.session_id, s.closing_mark) for n, s in world.metadata.replicas.items()}
