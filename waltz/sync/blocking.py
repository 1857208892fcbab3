"""Make blocking methods from the coroutine methods of a `LogClient`. Touches threads."""

from __future__ import annotations

import functools
from collections.abc import Callable, Coroutine
from typing import Any, Concatenate, Generic, ParamSpec, Protocol, Self, TypeVar, overload

from waltz.client import LogClient
from waltz.sync.event_loop import EventLoopThread

C = TypeVar("C")
P = ParamSpec("P")
T = TypeVar("T")


class _Owner(Protocol):
    """A client that has blocking methods, such as `SyncClient`."""

    @property
    def thread(self) -> EventLoopThread: ...

    @property
    def asyncio_client(self) -> LogClient[Any]: ...


class Blocking(Generic[C, P, T]):
    """A blocking method with the parameters, the defaults and the result of a coroutine method.

    It is a descriptor, for the body of a class such as `SyncClient`:

        class SyncClient(Generic[DataT]):
            append = Blocking(LogClient[DataT].append)

    The parameters are declared only in `LogClient`. A type checker infers from them the parameters
    of the blocking method.
    """

    def __init__(self, method: Callable[Concatenate[C, P], Coroutine[Any, Any, T]]) -> None:
        self._name = method.__name__
        self.__doc__ = method.__doc__

    @overload
    def __get__(self, owner: None, kind: type) -> Self: ...

    @overload
    def __get__(self, owner: _Owner, kind: type) -> Callable[P, T]: ...

    def __get__(self, owner: _Owner | None, kind: type) -> Self | Callable[P, T]:
        """Return the blocking method of ``owner``; without an owner, return this object."""
        if owner is None:
            return self
        method: Callable[P, Coroutine[Any, Any, T]] = getattr(owner.asyncio_client, self._name)
        thread = owner.thread

        @functools.wraps(method)
        def call(*args: P.args, **kwargs: P.kwargs) -> T:
            return thread.call(method(*args, **kwargs))

        return call
