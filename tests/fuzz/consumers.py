"""Data that is well-formed and has odd values, as its consumers use it after the decoding.

Each target has one rule: a consumer returns a value or raises one of its named errors.
"""

from __future__ import annotations

import json
import tempfile
from collections.abc import Callable
from pathlib import Path
from random import Random
from typing import Any
from uuid import UUID

from pydantic import ValidationError

from tests.fuzz import values
from tests.fuzz.mutation import mutate
from tests.fuzz.target import hold
from tests.support.operator_world import World, cluster_resource, pool_resource
from waltz.metadata.core.codec import MalformedMetadata
from waltz.metadata.core.formats import (
    OwnedPartition,
    PartitionAssignment,
    ReplicaAssignments,
    ServerDescriptor,
)
from waltz.metadata.core.membership_steps import (
    NOT_APPLIED,
    Member,
    Membership,
    next_for_client,
    next_for_server,
)
from waltz.metadata.core.policy import PolicyError, assign
from waltz.metadata.core.storage_maps import is_address
from waltz.net.dialer import DialFailed, split_address
from waltz.runtime.cluster_file import BadClusterFile, read_cluster_file
from waltz.spark.core.ledger import EpochIsOver, Ledger, LedgerMalformed, NewAttempt
from waltz.spark.core.offsets import offset_of, positions_of, readable_ends
from waltz.spark.core.option_values import OptionError
from waltz.spark.core.options import CLUSTER_KEY
from waltz_operator.core.desired import DesiredCluster
from waltz_operator.core.planning import plan
from waltz_operator.core.resources import StoragePool, WaltzCluster
from waltz_operator.core.status import cluster_status

_ODD: tuple[Any, ...] = (
    None, True, -1, 0, 1, 1 << 40, 1 << 70, 1.5, float("nan"), "", "x", "abc", "-1", "1" * 30, "\0",
    [], [1], [1, 2, 3], ["0", "1"], {}, {"0": "1"}, {"a": {"b": 1}}, "a:1", "٣", "\ud800",
)  # fmt: skip
_ADDRESSES = (
    "abc",
    ":1",
    "a:",
    "a:b",
    "a:-1",
    "a:0",
    "a:99999",
    "a:٣",
    "",
    "storage:6000",
)
_PARTITIONS = 4
_KEY = UUID(int=1)


class JsonTarget:
    """An input that is JSON text: a change replaces, removes or adds values, or changes bytes."""

    modules: tuple[str, ...] = ()

    def valid(self, random: Random) -> Any:
        """Return a valid value."""
        raise NotImplementedError

    def make(self, random: Random) -> bytes:
        """Return a valid input."""
        return json.dumps(self.valid(random)).encode()

    def change(self, random: Random, data: bytes, other: bytes) -> bytes:
        """Change a value; sometimes bytes."""
        if random.random() < 0.15:
            return mutate(random, data, other)
        try:
            value = json.loads(data)
        except (ValueError, RecursionError):
            return mutate(random, data, other)
        return json.dumps(_changed(random, value)).encode()


def _changed(random: Random, value: Any) -> Any:
    """Return ``value`` with one odd value somewhere."""
    if isinstance(value, dict) and value and random.random() < 0.9:
        key = random.choice(list(value))
        kind = random.random()
        rest = {name: each for name, each in value.items() if name != key}
        if kind < 0.1:
            return rest
        if kind < 0.2:
            return rest | {str(random.choice(_ODD)): value[key]}
        return value | {key: _changed(random, value[key])}
    if isinstance(value, list) and value and random.random() < 0.8:
        at = random.randrange(len(value))
        return [*value[:at], _changed(random, value[at]), *value[at + 1 :]]
    return random.choice(_ODD)


class Ledgers(JsonTarget):
    """The ledger of a write, joined by an attempt that then asks for its locks."""

    name = "ledger"
    modules = ("waltz.spark.core.ledger",)

    def valid(self, random: Random) -> Any:
        """Return a ledger with several attempts."""
        ledger = Ledger("write", 3)
        for client in range(random.randrange(1, 5)):
            run = f"run-{random.randrange(3)}"
            ledger = ledger.with_attempt(
                NewAttempt(3, run, client % 2, client), {client % 3: client}
            )
        return json.loads(ledger.encode())

    def check(self, data: bytes) -> bool:
        """Decode, join, and use the result."""
        try:
            ledger = Ledger.decode(data)
            joined = ledger.with_attempt(NewAttempt(3, "run-9", 1, 77), {0: 5})
        except LedgerMalformed as refused:
            hold(len(str(refused)) > 10, "a refusal is explained")
            return False
        except EpochIsOver:
            return True
        for has_row_ids in (False, True):
            joined.competing_attempts(77, has_row_ids=has_row_ids)
            locks = joined.locks_of(77, has_row_ids=has_row_ids)
            hold(locks.write_locks, "an attempt takes a lock")
        hold(Ledger.decode(joined.encode()) == joined, "decoding again gives another ledger")
        return True


class Offsets(JsonTarget):
    """The offset of a checkpoint."""

    name = "offsets"
    modules = ("waltz.spark.core.offsets",)

    def valid(self, random: Random) -> Any:
        """Return the offset of four partitions."""
        offset = offset_of({p: random.randrange(52) for p in range(_PARTITIONS)}, _KEY)
        if random.random() < 0.5:
            del offset[CLUSTER_KEY]  # An earlier version has written the offset.
        return offset

    def check(self, data: bytes) -> bool:
        """Decode the offset and compare it with the logs' ends."""
        try:
            offset = json.loads(data)
        except (ValueError, RecursionError):
            return False
        if not isinstance(offset, dict):
            # Spark itself passes nothing but an object.
            return False
        try:
            positions = positions_of(offset, range(_PARTITIONS), _KEY)
            readable_ends(positions, dict.fromkeys(range(_PARTITIONS), 50), skip_missing=False)
        except OptionError as refused:
            hold(len(str(refused)) > 10, "a refusal is explained")
            return False
        hold(all(at >= 0 for at in positions.values()), "a position is the id of a transaction")
        return True


class ClusterFiles(JsonTarget):
    """The file ``cluster.json``."""

    name = "cluster-file"
    modules = ("waltz.runtime.cluster_file",)

    def __init__(self) -> None:
        self._folder = tempfile.TemporaryDirectory(prefix="waltz-fuzz-")
        self._path = Path(self._folder.name) / "cluster.json"

    def valid(self, random: Random) -> Any:
        """Return a file as `waltz.local` writes it."""
        return {"zookeeper": "127.0.0.1:2181", "root": "/waltz", "tls": random.random() < 0.5}

    def check(self, data: bytes) -> bool:
        """Read it."""
        self._path.write_bytes(data)
        try:
            found = read_cluster_file(self._path)
        except BadClusterFile as refused:
            hold(str(self._path) in str(refused), "a refusal names the file")
            return False
        hold(isinstance(found.tls, bool) and isinstance(found.root, str), "values have types")
        return True


class Resources(JsonTarget):
    """A WaltzCluster with its pools, as the API server stores them, and the plan for them."""

    name = "resources"
    modules = ("waltz_operator.core.planning.planner", "waltz_operator.core.planning.workloads")

    def valid(self, random: Random) -> Any:
        """Return a cluster and three pools; sometimes some are in use already."""
        external: dict[str, Any] = {"external": {"connectString": "zk:1"}}
        zookeeper: dict[str, Any] = random.choice(({"managed": {}}, external))
        spec = {"zookeeper": zookeeper, "servers": {"replicas": random.randrange(1, 4)}}
        world = World(cluster_resource(**spec), [pool_resource(name) for name in "abc"])
        for _ in range(random.randrange(6)):
            world.settle()
            for step in plan(world.desired(), world.observed()).steps:
                world.perform(step)
        return {"cluster": world.cluster, "pools": list(world.pools.values())}

    def check(self, data: bytes) -> bool:
        """Validate, plan, and derive the status."""
        try:
            found = json.loads(data)
            cluster = WaltzCluster.model_validate(found["cluster"])
            pools = tuple(StoragePool.model_validate(pool) for pool in found["pools"])
        except (ValidationError, ValueError, RecursionError, LookupError, TypeError):
            # The API server passes on objects only.
            return False
        desired = DesiredCluster(cluster, pools)
        world = World(cluster_resource(), [])
        observed = world.observed()
        decided = plan(desired, observed)
        cluster_status(desired, observed, decided, "2026-01-01T00:00:00Z")
        return True


class Assignments:
    """The assignment of partitions to servers, as servers and clients act on it."""

    name = "assignments"
    modules = ("waltz.metadata.core.membership_steps", "waltz.metadata.core.policy")

    def make(self, random: Random) -> bytes:
        """Return the assignment of four partitions to two servers."""
        partitions = [OwnedPartition(p, random.randrange(5)) for p in range(_PARTITIONS)]
        cut = random.randrange(_PARTITIONS + 1)
        servers = {1: tuple(partitions[:cut]), 2: tuple(partitions[cut:])}
        return PartitionAssignment(2, _PARTITIONS, servers).encode()

    def change(self, random: Random, data: bytes, other: bytes) -> bytes:
        """Change bytes."""
        return mutate(random, data, other)

    def check(self, data: bytes) -> bool:
        """Decide the next steps of a server and of a client, and compute a new assignment."""
        try:
            found = PartitionAssignment.decode(data)
        except MalformedMetadata:
            return False
        members = tuple(
            Member(f"server_{n}", n, ServerDescriptor(n, "server", n, (0, 9))) for n in (1, 2)
        )
        membership = Membership(found, 1, 2, members)
        next_for_server(membership, 1, 1, NOT_APPLIED)
        next_for_client(membership, NOT_APPLIED)
        try:
            new = assign(found, 3, _PARTITIONS, membership.preferences(), lambda owned: None)
        except PolicyError as refused:
            hold(len(str(refused)) > 10, "a refusal is explained")
            return False
        hold(PartitionAssignment.decode(new.encode()) == new, "the new assignment is written")
        return True


class StorageNames:
    """The names of the storages in an assignment, as a server and an administrator dial them."""

    name = "storage-names"
    modules = ("waltz.metadata.core.storage_maps", "waltz.net.dialer")

    def make(self, random: Random) -> bytes:
        """Return an assignment with an odd name."""
        names = {"storage-0:6000", random.choice(_ADDRESSES)}
        return ReplicaAssignments({name: values.ints(random) for name in names}).encode()

    def change(self, random: Random, data: bytes, other: bytes) -> bytes:
        """Change bytes."""
        return mutate(random, data, other)

    def check(self, data: bytes) -> bool:
        """Split each name that a server accepts into host and port."""
        try:
            found = ReplicaAssignments.decode(data)
        except MalformedMetadata:
            return False
        for storage in found.partitions:
            try:
                _, port = split_address(storage)
            except DialFailed as refused:
                hold(repr(storage) in str(refused), "a refusal names the storage")
                hold(not is_address(storage), "a server accepts only names that it can dial")
            else:
                hold(0 <= port < 100_000, "a port is a small number")
        return True


_CONSUMERS: tuple[Callable[[], Any], ...] = (
    Ledgers,
    Offsets,
    ClusterFiles,
    Resources,
    Assignments,
    StorageNames,
)


def consumer_targets() -> tuple[Any, ...]:
    """Return one of each target of this module."""
    return tuple(make() for make in _CONSUMERS)
