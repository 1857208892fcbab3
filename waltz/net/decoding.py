"""Decode received messages so that no message can end the process. Touches only the log output."""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Any, NoReturn, TypeVar

from waltz.protocol import MalformedMessage

log = logging.getLogger(__name__)

_Decoded = TypeVar("_Decoded")


def decode_received(decode: Callable[..., _Decoded], *message: Any) -> _Decoded:
    """Return the decoded message; raise MalformedMessage for every exception of ``decode``.

    An unexpected exception must not end the process: the next process could then get the same
    message, as a client's request or as a storage's answer, and one process after another would
    end. The message has changed nothing yet, so it is safe to close only the connection.
    """
    try:
        return decode(*message)
    except Exception as error:
        raise_malformed(error)


def raise_malformed(error: Exception) -> NoReturn:
    """Raise MalformedMessage for an exception of a decoder, as `decode_received` does.

    This is for a loop over many messages, in which a call of `decode_received` for each message
    would be too slow.
    """
    if isinstance(error, MalformedMessage):
        raise error
    log.error(
        "unexpected error while a message was decoded (a defect of Waltz, please report it), "
        "closing the connection",
        exc_info=error,
    )
    raise MalformedMessage(f"decoding a message failed: {error!r}") from error
