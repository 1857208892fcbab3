"""Log the state of a session once per change; lower kazoo's own warnings to the level DEBUG.

kazoo logs several warnings for every attempt to connect, and an outage has many attempts. Touches
the log only.
"""

from __future__ import annotations

import logging
from typing import Any

from typing_extensions import override

from waltz.metadata.store import SessionState

log = logging.getLogger(__name__)


class KazooLog(logging.LoggerAdapter[logging.Logger]):
    """The logger that kazoo gets. Its lines below the level ERROR get at most the level DEBUG."""

    def __init__(self) -> None:
        super().__init__(log)

    @override
    def log(self, level: int, msg: object, *args: object, **kwargs: Any) -> None:
        if level < logging.ERROR:
            level = min(level, logging.DEBUG)
        super().log(level, msg, *args, **kwargs)


class SessionLog:
    """Logs the changes of one session with the ZooKeeper at ``address``."""

    def __init__(self, address: str) -> None:
        self._address = address
        self._last: SessionState | None = None

    def changed(self, state: SessionState) -> None:
        """Log ``state`` if it differs from the last one.

        The first connection is not logged: the caller of `KazooStore.connect` sees its result.
        """
        last, self._last = self._last, state
        if state is last:
            return
        match state:
            case SessionState.SUSPENDED:
                log.warning("ZooKeeper at %s: connection lost; reconnecting", self._address)
            case SessionState.LOST:
                log.warning(
                    "ZooKeeper at %s: session expired; opening another session", self._address
                )
            case SessionState.CONNECTED:
                if last is not None:
                    log.info("ZooKeeper at %s: reconnected", self._address)
            case SessionState.CLOSED:
                pass
