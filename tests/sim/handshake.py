"""Return the result of a handshake, which takes no time in the simulation."""

from __future__ import annotations

from waltz.protocol import FrameDecoder
from waltz.protocol.frames import CLIENT_SERVER


def decoder_of(version: int) -> FrameDecoder:
    """Return the decoder of a connection of protocol ``version``."""
    only = CLIENT_SERVER.limited_to(version)
    decoder = FrameDecoder(only)
    decoder.feed(only.hello(dialer=True))
    assert decoder.version == version
    return decoder
