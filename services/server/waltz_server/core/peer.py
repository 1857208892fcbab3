"""A client's connection as the core sees it. Pure."""

from __future__ import annotations

MOST_QUEUED_READS = 1000
"""The shell does not read a connection with more `Peer.queued_reads` than this."""


class Peer:
    """The state of one client's connection, shared by all partitions.

    Peers are compared by identity. A peer holds no socket: the shell reports congestion.
    """

    __slots__ = (
        "congested",
        "has_range_ahead",
        "queued_reads",
        "range_reads",
        "unread_until",
        "version",
    )

    def __init__(self, version: int) -> None:
        self.version = version
        """The protocol version that the connection has agreed on."""
        self.range_reads = 0
        """Number of reads of ranges that a replica is answering for this client, in all partitions.

        The number is bounded, because each answer may be large.
        """
        self.has_range_ahead = False
        """Whether a range is held, or is being read, that the client has not requested yet.

        A connection has at most one, because it may be large (`reads.ranges_ahead`).
        """
        self.queued_reads = 0
        """Number of requests for transaction data in the queues of `reads.data_reads`.

        The queues of all partitions are counted.
        """
        self.congested = False
        """Whether the client reads too slowly. Then its feeds and reads of data and ranges wait.

        Partitions still send answers to its other requests. The shell sets this flag when the
        connection's buffer is full. When the buffer has drained, the shell clears the flag and
        calls `Partition.writable` of every partition.
        """
        self.unread_until = 0.0
        """The time until which the shell must not read the connection, by the clock of the quotas.

        0 or a time in the past if the client is within its quota.
        """

    @property
    def has_long_queue(self) -> bool:
        """Whether too many requests for data wait: then the shell must not read the connection."""
        return self.queued_reads > MOST_QUEUED_READS
