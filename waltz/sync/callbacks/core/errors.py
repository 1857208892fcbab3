"""What can go wrong with callbacks, beside the client's own errors. Pure."""

from __future__ import annotations

from waltz.client.core.errors import WaltzError


class PartitionInactive(WaltzError):
    """The partition is not, or no longer, among those that the client handles."""

    def __init__(self, partition: int) -> None:
        super().__init__(
            f"partition {partition} is not active in this client: add it with set_partitions, or "
            "submit where it is active"
        )
        self.partition = partition


class TimedOut(WaltzError, TimeoutError):
    """What was waited for did not happen in time; nothing is lost, and it goes on."""


class DataMissing(WaltzError, ValueError):
    """``execute`` returned true and gave the transaction no data."""

    def __init__(self) -> None:
        super().__init__(
            "execute returned true without data: set builder.data, or return False if there is "
            "nothing to append"
        )


class InCallback(WaltzError, RuntimeError):
    """A callback waits for what can only happen after it has returned."""

    def __init__(self, call: str) -> None:
        super().__init__(
            f"{call} in a callback would wait for that callback itself: call it on another thread"
        )
