"""A handler that records what its connection passes on."""

from __future__ import annotations

from waltz.net import FrameConnection, FrameHandler


class RecordingHandler(FrameHandler):
    """Records its connection, the message bodies, and why the connection ended."""

    def __init__(self) -> None:
        self.connection: FrameConnection | None = None
        self.bodies: list[bytes] = []
        self.reasons: list[str] = []

    def ready(self, connection: FrameConnection) -> None:
        self.connection = connection

    def received(self, bodies: list[bytes]) -> None:
        self.bodies += bodies

    def lost(self, reason: str) -> None:
        self.reasons.append(reason)
