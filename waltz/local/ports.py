"""Choose ports that a local cluster can keep across restarts. Binds each port for a moment.

Clusters that start at the same time choose different ports: see `PortReservations`.

The system takes the local ports of outgoing connections from a range of ports. This module chooses
ports below that range. Otherwise an outgoing connection could take the port of a stopped process,
and the process could not start again.
"""

from __future__ import annotations

import errno
import random
import socket
import sys
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path

from waltz.local.core.plan import HOST

_RANGE_FILE = Path("/proc/sys/net/ipv4/ip_local_port_range")
"""The file with the first and the last port of the range for outgoing connections."""
_DEFAULT_LOWEST_OUTGOING = 32_768
"""The first port of this range if the file is missing: the default of Linux."""
_LOWEST_CANDIDATE = 10_240
"""The lowest *candidate*, which is a port that can be chosen."""
_FEWEST_CANDIDATES = 1_000
"""With this number of candidates or fewer, the system chooses the ports instead.

Among so few, random choices could fail to find a free port in `_TRIES` tries.
"""
_TRIES = 50
"""How many ports are tried for each wanted port, and how many times a whole set is chosen."""


class NoFreePorts(OSError):
    """No free port was found."""


class PortReservations:
    """The ports that a cluster has chosen, and that its processes bind only later.

    Until `release` or the end of this process, no other process that uses this class on this
    machine chooses these ports. A reservation is a Unix socket with an abstract name, which leaves
    no file behind. Only Linux has such names: on other systems, two clusters that start at the same
    time can choose the same port.

    ``draw`` is called with a number, and returns as many different free ports. If it is None,
    `choose_ports` is called.
    """

    def __init__(self, draw: Callable[[int], Iterator[int]] | None = None) -> None:
        self._draw = draw
        self._held = ExitStack()
        """The sockets of the reservations."""

    def choose(self, count: int, host: str = HOST) -> Iterator[int]:
        """Choose and reserve ``count`` different ports at ``host``. Raises NoFreePorts."""
        for _ in range(_TRIES):
            ports = list(
                choose_ports(count, host=host) if self._draw is None else self._draw(count)
            )
            if all(self._reserve(port) for port in ports):
                return iter(ports)
            # Another cluster has one of the ports. Release the others, and choose a new set.
            self.release()
        raise NoFreePorts(f"other clusters had reserved the free ports on {host} in {_TRIES} tries")

    def release(self) -> None:
        """Give up all reservations."""
        self._held.close()

    def _reserve(self, port: int) -> bool:
        """Reserve ``port``; return False if another process has reserved it."""
        if not sys.platform.startswith("linux"):
            return True
        reservation = self._held.enter_context(socket.socket(socket.AF_UNIX))
        try:
            reservation.bind(f"\0waltz-local-port-{port}")
        except OSError:
            return False
        return True


def choose_ports(count: int, seed: int | None = None, *, host: str = HOST) -> Iterator[int]:
    """Return ``count`` different ports of ``host`` on which no process listens.

    The same ``seed`` gives the same random choice. Raises NoFreePorts, also if ``host`` is no
    address of this machine.
    """
    candidates = _candidates()
    source = random.Random(seed)
    with ExitStack() as held:
        # All ports stay bound until the last one is found, so that no port is found twice.
        chosen = [_bind_free(host, candidates, source, held) for _ in range(count)]
    return iter(chosen)


def is_no_own_address(problem: OSError) -> bool:
    """Return whether a bind failed because its host is no address of this machine."""
    # The error of a name that cannot be resolved is a gaierror, whose `errno` is not one of the
    # operating system.
    return isinstance(problem, socket.gaierror) or problem.errno == errno.EADDRNOTAVAIL


def _bind_free(host: str, candidates: range, source: random.Random, held: ExitStack) -> int:
    """Bind and return a free port of ``candidates``; without candidates, the system chooses one.

    ``held`` gets the socket, and keeps the port bound until it is closed. Raises NoFreePorts.
    """
    for _ in range(_TRIES):
        probe = held.enter_context(socket.socket())
        try:
            probe.bind((host, source.choice(candidates) if candidates else 0))
        except OSError as problem:
            if is_no_own_address(problem):
                raise NoFreePorts(
                    f"cannot listen on {host} ({problem.strerror}); choose an address of this "
                    "machine with --host"
                ) from problem
            continue
        port: int = probe.getsockname()[1]
        return port
    raise NoFreePorts(
        f"found no free port on {host} in {_TRIES} tries; end processes that use many ports"
    )


def _candidates() -> range:
    """Return the ports below the range for outgoing connections; an empty range if too few."""
    try:
        lowest_outgoing = int(_RANGE_FILE.read_text().split()[0])
    except OSError:
        lowest_outgoing = _DEFAULT_LOWEST_OUTGOING
    candidates = range(_LOWEST_CANDIDATE, lowest_outgoing)
    return candidates if len(candidates) > _FEWEST_CANDIDATES else range(0)
