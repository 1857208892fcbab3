"""Something being opened, to be awaited or entered. Touches what the opening touches."""

from __future__ import annotations

from collections.abc import Callable, Coroutine, Generator
from typing import Any, Generic, Protocol, TypeVar


class Closable(Protocol):
    """Something that is closed at the end of a block."""

    async def close(self) -> None:
        """Close it."""


T = TypeVar("T", bound=Closable)


class Opening(Generic[T]):
    """``await`` it to get what it opens, or enter it with ``async with`` to have that closed."""

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
