"""The errors of callbacks, in addition to those of the client. Pure."""

from __future__ import annotations

from waltz.client.core.errors import WaltzError


class PartitionInactive(WaltzError):
    """The partition is not one of the active partitions of the client."""

    def __init__(self, partition: int) -> None:
        super().__init__(
            f"partition {partition} is not active in this client: add it with set_partitions, or "
            "submit to a client in which it is active"
        )
        self.partition = partition


class TimedOut(WaltzError, TimeoutError):
    """A wait has timed out. The work that the caller waited for continues.

    If ``submit`` raises this error, the context was not submitted.
    """


class DataMissing(WaltzError, ValueError):
    """``execute`` returned True without setting the data of the transaction."""

    def __init__(self) -> None:
        super().__init__(
            "execute returned True without data: set builder.data, or return False if there is "
            "nothing to append"
        )


class InCallback(WaltzError, RuntimeError):
    """A callback made a call that would wait for the end of the same callback, forever."""

    def __init__(self, call: str) -> None:
        super().__init__(
            f"{call} was called in a callback and would wait for that callback: call it on another "
            "thread"
        )
