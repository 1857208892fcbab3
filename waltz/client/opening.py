"""The result of `waltz.connect`: awaited or entered. Waits on the event loop."""

from __future__ import annotations

from collections.abc import Callable, Coroutine, Generator
from typing import Any, Generic, Protocol, TypeVar


class Closable(Protocol):
    """An object that is closed at the end of a block."""

    async def close(self) -> None:
        """Close it."""


T = TypeVar("T", bound=Closable)


class Opening(Generic[T]):
    """Opens a client: ``await`` it, or enter it with ``async with``, which closes the client."""

    def __init__(self, open_it: Callable[[], Coroutine[Any, Any, T]]) -> None:
        self._open_it = open_it
        self._opened: T | None = None

    def __await__(self) -> Generator[Any, None, T]:
        return self._open_it().__await__()

    async def __aenter__(self) -> T:
        self._opened = await self._open_it()
        return self._opened

    async def __aexit__(self, *_: object) -> None:
        assert self._opened is not None
        await self._opened.close()
