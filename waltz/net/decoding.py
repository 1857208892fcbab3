"""Decode received messages so that no message can end the process. Touches only the log output."""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Any, TypeVar

from waltz.protocol import MalformedMessage

log = logging.getLogger(__name__)

_Decoded = TypeVar("_Decoded")


def decode_received(decode: Callable[..., _Decoded], *message: Any) -> _Decoded:
    """Return the decoded message; raise MalformedMessage for every exception of ``decode``.

    An unexpected exception must not end the process: the peer would then send the same message to
    the next process, and one process after another would end. The message has changed nothing yet,
    so it is safe to close only the connection.
    """
    try:
        return decode(*message)
    except MalformedMessage:
        raise
    except Exception as error:
        log.exception("received message not decoded, closing the connection: please report this")
        raise MalformedMessage(f"decoding a message failed: {error!r}") from error
