"""What the operator does, one step at a time, and what a plan is. Pure.

Each step may be done twice, and may be broken off anywhere: what is observed afterwards says how to
go on. Its text is what a user reads among the events.
"""

from __future__ import annotations

import uuid
from dataclasses import dataclass, field

from waltz.admin.core.steps import Step as ReplicaStep
from waltz_operator.core.objects import Manifest, ObjectKey


@dataclass(frozen=True, slots=True)
class Claim:
    """Mark a pool as this cluster's, and keep it from vanishing."""

    pool: str

    def __str__(self) -> str:
        return f"StoragePool {self.pool} is claimed"


@dataclass(frozen=True, slots=True)
class Release:
    """Give a pool free for another cluster, or let it vanish."""

    pool: str

    def __str__(self) -> str:
        return f"StoragePool {self.pool} is released"


@dataclass(frozen=True, slots=True)
class Guard:
    """Keep the WaltzCluster from vanishing before its parts do."""

    def __str__(self) -> str:
        return "the cluster is guarded by a finalizer"


@dataclass(frozen=True, slots=True)
class LetGo:
    """Let the WaltzCluster vanish."""

    def __str__(self) -> str:
        return "nothing is left of the cluster that has to go"


@dataclass(frozen=True, slots=True)
class Apply:
    """Have an object be what it shall be, by a server-side apply; ``new`` if there is none."""

    manifest: Manifest
    new: bool

    def __str__(self) -> str:
        return f"{self.manifest.key} is {'created' if self.new else 'repaired'}"


@dataclass(frozen=True, slots=True)
class Delete:
    """Delete exactly the object that was seen."""

    key: ObjectKey
    uid: str

    def __str__(self) -> str:
        return f"{self.key} is deleted"


@dataclass(frozen=True, slots=True)
class IssueCertificates:
    """Make the secrets of TLS that are missing; renew the processes' certificate if it ends soon.

    An authority that is there stays.
    """

    renew: bool

    def __str__(self) -> str:
        return f"certificates are {'renewed' if self.renew else 'made'}"


@dataclass(frozen=True, slots=True)
class CreateMetadata:
    """Make the znodes of a new cluster."""

    name: str
    num_partitions: int
    key: uuid.UUID

    def __str__(self) -> str:
        return f"the cluster {self.name} is created in ZooKeeper"


@dataclass(frozen=True, slots=True)
class DeleteMetadata:
    """Delete the znodes of a cluster that nobody needs, or whose creation was broken off."""

    name: str

    def __str__(self) -> str:
        return f"the cluster {self.name} is deleted in ZooKeeper"


KubernetesStep = Claim | Release | Guard | LetGo | Apply | Delete | IssueCertificates
MetadataStep = CreateMetadata | DeleteMetadata
Step = KubernetesStep | MetadataStep | ReplicaStep
"""`ReplicaStep`: every change of storages and replicas, performed by `waltz.admin`."""


@dataclass(frozen=True, slots=True)
class Plan:
    """What may be done now, in this order; what is waited for; what only a person can mend.

    With none of the three the cluster is what it shall be.
    """

    steps: tuple[Step, ...] = ()
    waits: tuple[str, ...] = ()
    problems: tuple[str, ...] = field(default=())

    def __add__(self, other: Plan) -> Plan:
        return Plan(
            self.steps + other.steps, self.waits + other.waits, self.problems + other.problems
        )

    @property
    def done(self) -> bool:
        """Whether everything is as it shall be."""
        return not (self.steps or self.waits or self.problems)


NOTHING = Plan()


def wait(*reasons: str) -> Plan:
    """Return a plan to wait until these have changed by themselves."""
    return Plan(waits=reasons)


def problem(*sentences: str) -> Plan:
    """Return a plan to leave these to a person."""
    return Plan(problems=sentences)
