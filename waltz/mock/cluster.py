"""The mock cluster, which a test makes, causes faults in, and opens clients of. Threads."""

from __future__ import annotations

from typing import Any, TypedDict, TypeVar, Unpack, overload

from waltz.client import ClientOptions, Serializer
from waltz.client.opening import Opening
from waltz.mock.client import MockClient
from waltz.mock.shared import SharedLogs

T = TypeVar("T")


class MockOptions(TypedDict, total=False):
    """The options that `MockCluster.connect` takes; see `waltz.ClientOptions`."""

    append_timeout: float | None
    answer_timeout: float | None
    max_in_flight: int


class MockCluster(SharedLogs):
    """A cluster in memory, without processes, network or disk.

    ``faults`` has the rates of the faults that happen by themselves; it may be changed at any time.
    They follow from ``seed``, so that a failing test fails again. The methods may be called from
    any thread.
    """

    @overload
    def connect(
        self, *, serializer: Serializer[T], **options: Unpack[MockOptions]
    ) -> Opening[MockClient[T]]: ...

    @overload
    def connect(
        self, *, serializer: None = None, **options: Unpack[MockOptions]
    ) -> Opening[MockClient[bytes]]: ...

    def connect(
        self, *, serializer: Serializer[Any] | None = None, **options: Unpack[MockOptions]
    ) -> Opening[MockClient[Any]]:
        """Open a client. Await the result, or enter it with ``async with``, as of
        `waltz.connect`."""

        async def open_it() -> MockClient[Any]:
            chosen = ClientOptions(serializer=serializer, **options)
            return MockClient(self, self.new_client_id(), chosen)

        return Opening(open_it)
