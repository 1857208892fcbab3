"""Decoders with a planted defect, and the errors that reach the event loop because of it.

A message that makes a decoder raise an unexpected exception must end only its connection. An
exception that reaches the event loop would end a server, or the process of an application.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

Decoder = Callable[..., Any]


def fails_for(decode: Decoder, kind: type) -> Decoder:
    """Return ``decode``, but with an IndexError instead of each message of class ``kind``."""

    def failing(*received: Any) -> Any:
        message = decode(*received)
        if isinstance(message, kind):
            raise IndexError("beyond the end")
        return message

    return failing


def fails_once(decode: Decoder) -> Decoder:
    """Return ``decode``, but with an IndexError at its first call."""
    failures = [IndexError("beyond the end")]

    def failing(*received: Any) -> Any:
        if failures:
            raise failures.pop()
        return decode(*received)

    return failing


def errors_of_event_loop() -> list[dict[str, Any]]:
    """Return a list to which the running event loop adds each error that reaches it from now on."""
    found: list[dict[str, Any]] = []
    asyncio.get_running_loop().set_exception_handler(lambda _, context: found.append(context))
    return found
