"""Whether the servers of a cluster use TLS, as they declare in ZooKeeper. Pure.

The znode ``transport`` below the cluster's root has these declarations as JSON. A client whose
settings do not say whether to use TLS follows the znode. Without the znode, as in a cluster of
Waltz 0.13.2, the client uses TLS.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from enum import StrEnum

from waltz.metadata.core.codec import MalformedMetadata

_FORMAT = 1


class Transport(StrEnum):
    """What a server uses on its port for clients, and on its connections to storages."""

    TLS = "tls"
    PLAINTEXT = "plaintext"

    @classmethod
    def of(cls, *, uses_tls: bool) -> Transport:
        """Return TLS or PLAINTEXT."""
        return cls.TLS if uses_tls else cls.PLAINTEXT


@dataclass(frozen=True, slots=True)
class ServerTransport:
    """What clients use, and what each server has declared.

    The keys of ``servers`` are the servers' addresses for clients, ``host:port``. Servers without a
    declaration, such as those of Waltz 0.13.2, are not in ``servers``.
    """

    clients: Transport
    servers: Mapping[str, Transport] = field(default_factory=dict)

    def encode(self) -> bytes:
        """Return the data of the znode."""
        servers = {server: used.value for server, used in sorted(self.servers.items())}
        fields = {"format": _FORMAT, "client_port": self.clients.value, "servers": servers}
        return json.dumps(fields).encode()

    @classmethod
    def decode(cls, data: bytes) -> ServerTransport:
        """Read what `encode` returned. Raises MalformedMetadata."""
        try:
            fields = json.loads(data)
            if fields["format"] != _FORMAT:
                raise ValueError(f"format {fields['format']} is not {_FORMAT}")
            servers = {str(server): Transport(used) for server, used in fields["servers"].items()}
            return cls(Transport(fields["client_port"]), servers)
        except KeyError as problem:
            raise MalformedMetadata("ServerTransport", f"it has no {problem}") from problem
        except (ValueError, TypeError, AttributeError, RecursionError) as problem:
            raise MalformedMetadata("ServerTransport", str(problem)) from problem


def declare(
    before: ServerTransport | None, server: str, declaration: Transport, registered: Collection[str]
) -> ServerTransport:
    """Return ``before`` with the ``declaration`` of ``server``.

    ``registered`` are the addresses of the servers in the cluster. Declarations of other servers
    are removed. What clients use follows from the declarations that remain:

    * At least one server declares TLS: TLS.
    * Every registered server declares plaintext: plaintext. One of them is not enough: a server
      that was started without TLS by mistake must not make clients send plaintext to a cluster with
      TLS.
    * No server declares TLS, and some have no declaration: what clients used before, or TLS if
      ``before`` is None. A server that was not registered for a moment has lost its declaration.
      Clients that used plaintext must not change to TLS because of that.
    """
    known = {} if before is None else before.servers
    servers = {address: used for address, used in known.items() if address in registered}
    servers[server] = declaration
    # None stands for the servers without a declaration.
    declared = {servers.get(address) for address in {server, *registered}}
    if Transport.TLS in declared:
        clients = Transport.TLS
    elif None not in declared:
        clients = Transport.PLAINTEXT
    else:
        clients = Transport.TLS if before is None else before.clients
    return ServerTransport(clients, servers)


def for_clients(declared: ServerTransport, registered: Collection[str]) -> Transport:
    """Return what a client uses. ``registered`` are the addresses of the servers in the cluster.

    Usually that is ``declared.clients``. But if every registered server has declared plaintext, the
    client uses plaintext, even if ``declared.clients`` is still TLS: then the server with TLS has
    left, or has never registered. The client decides this itself, because it may take long until a
    server writes the znode again.
    """
    # None stands for the servers without a declaration.
    declarations = {declared.servers.get(address) for address in registered}
    if declarations == {Transport.PLAINTEXT}:
        return Transport.PLAINTEXT
    return declared.clients
