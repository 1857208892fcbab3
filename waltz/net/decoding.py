"""Decode received messages so that no message can end the process. Touches only the log output."""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Any, NoReturn, TypeVar

from waltz.protocol import MalformedMessage

log = logging.getLogger(__name__)

_Decoded = TypeVar("_Decoded")


def decode_received(decode: Callable[..., _Decoded], *message: Any) -> _Decoded:
    """Return what ``decode`` returns for the arguments ``message``.

    Raises MalformedMessage for every exception of ``decode``, also for an unexpected one. An
    unexpected exception must not end the process. The peer could send the same message to the next
    process, as a client's request or as a storage's answer, and one process after another would
    end. A message that is not decoded has changed nothing, so it is safe to close only the
    connection.
    """
    try:
        return decode(*message)
    except Exception as error:
        raise_malformed(error)


def raise_malformed(error: Exception) -> NoReturn:
    """Raise MalformedMessage for ``error``, an exception of a decoder; log an unexpected one.

    `decode_received` calls this. A loop over many messages calls it directly, because a call of
    `decode_received` for each message would be too slow.
    """
    if isinstance(error, MalformedMessage):
        raise error
    log.error(
        "unexpected error while a message was decoded (a defect of Waltz, please report it), "
        "closing the connection",
        exc_info=error,
    )
    raise MalformedMessage(f"decoding a message failed: {error!r}") from error
