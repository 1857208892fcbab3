"""A client's connection as the core sees it. Values only."""

from __future__ import annotations


class Peer:
    """The state of one client's connection, shared by all partitions.

    Pure. Peers are compared by identity. A peer holds no socket: the shell reports congestion as an
    event.
    """

    __slots__ = ("congested", "reads", "version")

    def __init__(self, version: int) -> None:
        self.version = version
        """The protocol version that the connection has agreed on."""
        self.reads = 0
        """Number of reads of ranges that a replica is answering for this client, in all partitions.

        The number is bounded, because each answer may be large.
        """
        self.congested = False
        """Whether the client reads too slowly; then its feeds and its reads of ranges wait.

        Partitions still send answers to its other requests. The shell sets this flag when the
        connection's buffer is full. When the buffer has drained, the shell clears the flag and
        calls `Partition.writable` of every partition.
        """
