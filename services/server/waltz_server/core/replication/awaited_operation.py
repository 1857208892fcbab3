"""Accept only the result of the newest operation on a partition's metadata. Pure.

`store_partition` and `session_metadata` start the operations.
"""

from __future__ import annotations

from waltz_server.core.effects import MetadataOperation, Ready


class AwaitedOperation:
    """Starts operations, and rejects the late results of earlier operations.

    The late result of an operation of an earlier generation or session must not be taken for the
    result of the newest operation: a session would begin with metadata that were not written. The
    planted bug "a late answer of the metadata counts" (tests/mutants) shows that failure.
    """

    def __init__(self, ready: Ready) -> None:
        self._ready = ready
        self._operation: MetadataOperation | None = None

    @property
    def is_pending(self) -> bool:
        """Whether the result of an operation is awaited."""
        return self._operation is not None

    def start(self, operation: MetadataOperation) -> None:
        """Start ``operation``; from now on only its result is accepted."""
        self._operation = operation
        self._ready.add(operation)

    def cancel(self) -> None:
        """Accept no result from now on."""
        self._operation = None

    def accept(self, operation: MetadataOperation) -> bool:
        """Return whether to accept the result of ``operation``; a second result is not accepted."""
        if operation is not self._operation:
            return False
        self._operation = None
        return True
