"""The result of `waltz.connect`, which opens a client. Waits on the event loop."""

from __future__ import annotations

from collections.abc import Callable, Coroutine, Generator
from typing import Any, Generic, Protocol, TypeVar


class AsyncClosable(Protocol):
    """An object that must be closed, such as a client."""

    async def close(self) -> None:
        """Close the object."""


T = TypeVar("T", bound=AsyncClosable)


class Opening(Generic[T]):
    """A client that is not open yet.

    ``await`` opens and returns the client. ``async with`` opens it, and closes it at the end.
    """

    def __init__(self, open_client: Callable[[], Coroutine[Any, Any, T]]) -> None:
        self._open_client = open_client
        self._opened: T | None = None

    def __await__(self) -> Generator[Any, None, T]:
        return self._open_client().__await__()

    async def __aenter__(self) -> T:
        self._opened = await self._open_client()
        return self._opened

    async def __aexit__(self, *_: object) -> None:
        assert self._opened is not None
        await self._opened.close()
