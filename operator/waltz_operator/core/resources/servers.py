"""`Servers` in a WaltzCluster: how many, their ports, caches and limits, where they run. Pure."""

from __future__ import annotations

from typing import Annotated, ClassVar

from pydantic import Field

from waltz_operator.core.resources.model import Model, rule
from waltz_operator.core.resources.parts import Port, Resources, Scheduling

_MEBIBYTE = 1 << 20


class Caches(Model):
    """The sizes of a server's caches."""

    feed_bytes: Annotated[int, Field(ge=_MEBIBYTE, le=1 << 40)] = 64 * _MEBIBYTE
    """The cache of the feeds to clients, in bytes, shared by all partitions of the server."""

    data_bytes: Annotated[int, Field(ge=_MEBIBYTE, le=1 << 40)] = 128 * _MEBIBYTE
    """The cache of recent transaction data, in bytes, shared by all partitions of the server."""


class Quotas(Model):
    """The limits of each client at one server."""

    append_bytes_per_second: Annotated[int, Field(ge=0, le=1 << 40)] = 0
    """The bytes that a client may append per second; a faster client waits. 0: no limit."""

    connections: Annotated[int, Field(ge=0, le=100_000)] = 0
    """The most open connections of a client; further ones are closed. 0: no limit."""


class Servers(Model):
    """The servers, to which clients connect."""

    replicas: Annotated[int, Field(ge=1, le=100)] = 2
    """The number of servers, among which the partitions are distributed."""

    port: Port = 6100
    """The port for clients."""

    http_port: Port = 6101
    """The port for health and metrics."""

    caches: Caches = Caches()
    """The sizes of the caches of each server."""

    quotas: Quotas = Quotas()
    """The limits of each client."""

    access_required: bool = False
    """Whether servers refuse every request of clients while the cluster has no access rules. It
    needs TLS."""

    resources: Resources = Resources(requests={"cpu": "50m", "memory": "320Mi"})
    """The resource requests and limits of each server. If unset, 50m of CPU and 320Mi of memory are
    requested, which is enough for the default caches, and there are no limits."""

    scheduling: Scheduling = Scheduling()
    """The nodes on which servers may run."""

    RULES: ClassVar[tuple[dict[str, str], ...]] = (
        rule("self.port != self.httpPort", "servers.port and servers.httpPort must differ"),
        rule(
            "!('memory' in self.resources.limits) "
            "|| !isQuantity(self.resources.limits['memory']) "
            "|| quantity(self.resources.limits['memory']).asApproximateFloat() "
            ">= double(self.caches.feedBytes + self.caches.dataBytes)",
            "servers.resources.limits.memory is less than the caches need: raise the limit, or "
            "lower servers.caches",
        ),
    )
