"""The mock cluster: what a test makes, disturbs, and opens clients of."""

from __future__ import annotations

from typing import Any, TypedDict, TypeVar, Unpack, overload

from waltz.client import ClientOptions, Serializer
from waltz.client.opening import Opening
from waltz.mock.client import MockClient
from waltz.mock.shared import SharedLogs

T = TypeVar("T")


class MockOptions(TypedDict, total=False):
    """The arguments of `MockCluster.connect` beside the serializer, as in `waltz.connect`."""

    append_timeout: float | None
    answer_timeout: float | None
    max_in_flight: int


class MockCluster(SharedLogs):
    """A cluster without processes, network or disk, that lives as long as this object.

    ``seed`` decides what goes wrong by itself as ``faults`` has it; they may be changed any time.
    The methods may be called from any thread.
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
        """Open a client, to be awaited or entered as what `waltz.connect` returns."""

        async def open_it() -> MockClient[Any]:
            chosen = ClientOptions(
                serializer=serializer,
                append_timeout_seconds=options.get("append_timeout"),
                answer_timeout_seconds=options.get("answer_timeout"),
                max_in_flight=options.get("max_in_flight", 1000),
            )
            return MockClient(self, self.new_client_id(), chosen)

        return Opening(open_it)
