"""Choose ports that a local cluster can keep. Binds each port for a moment.

They lie below the range from which the system takes the ports of outgoing connections. Within that
range, any outgoing connection could take the port of a stopped process, even a connection to that
port, which then connects to itself.
"""

from __future__ import annotations

import random
import socket
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

from waltz.local.core.plan import HOST

_RANGE_FILE = Path("/proc/sys/net/ipv4/ip_local_port_range")
_USUAL_OUTGOING = 32_768
_LOWEST = 10_240
_FEWEST = 1_000
_TRIES = 50


class NoFreePorts(OSError):
    """No free port was found."""


def choose_ports(count: int, seed: int | None = None) -> Iterator[int]:
    """Yield ``count`` different ports on which no process listens. Raises NoFreePorts."""
    candidates = _candidates()
    draw = random.Random(seed)
    with ExitStack() as held:
        # All are held until the last is found, so that they differ.
        chosen = [_take(candidates, draw, held) for _ in range(count)]
    return iter(chosen)


def _take(candidates: range, draw: random.Random, held: ExitStack) -> int:
    for _ in range(_TRIES):
        probe = held.enter_context(socket.socket())
        try:
            probe.bind((HOST, draw.choice(candidates) if candidates else 0))
        except OSError:
            continue
        port: int = probe.getsockname()[1]
        return port
    raise NoFreePorts(
        f"found no free port on {HOST} in {_TRIES} tries; end processes that use many ports"
    )


def _candidates() -> range:
    """Return the ports below the outgoing range; none if that leaves too few."""
    try:
        lowest_outgoing = int(_RANGE_FILE.read_text().split()[0])
    except OSError:
        lowest_outgoing = _USUAL_OUTGOING
    return range(_LOWEST, lowest_outgoing) if lowest_outgoing - _LOWEST > _FEWEST else range(0)
