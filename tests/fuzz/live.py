"""Send mutated sessions to the ports of running processes, beside a valid client.

A session is sent in chunks, then the fuzzer closes its side of the connection: the process must
close the other side. Its log must then have one line about each connection that it closed itself.
"""

from __future__ import annotations

import asyncio
import contextlib
import ssl
import tempfile
import time
import traceback
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path
from random import Random

from tests.fuzz.conversation import change, expected_violation, make_conversation
from tests.fuzz.live_scene import HOST, Scene, TargetPort
from tests.fuzz.mutation import mutate, pieces
from tests.fuzz.runner import Finding
from tests.fuzz.target import Broken, hold, pack
from tests.support.eventually import eventually

_SESSIONS = 8
_CHECK_EVERY = 25
_CLOSE_SECONDS = 15.0
_LINE_SECONDS = 10.0
_TLS_SHARE = 0.3
_MOST_FINDINGS = 5
_READ_BYTES = 1 << 16

_HTTP = (
    b"GET /health HTTP/1.1\r\nHost: a\r\n\r\n",
    b"GET /metrics?pretty=true HTTP/1.1\r\nHost: a\r\nAccept: text/plain\r\n\r\n",
    b"POST /ping HTTP/1.1\r\nHost: a\r\nContent-Length: 5\r\n\r\nhello",
    b"PUT /ping HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n0\r\n\r\n",
    b"GET /ping HTTP/1.0\r\nConnection: Upgrade\r\nUpgrade: h2c\r\nExpect: 100-continue\r\n\r\n",
)


@dataclass(frozen=True, slots=True)
class Session:
    """The data of one connection; ``outer``: sent below TLS, not through it."""

    door: TargetPort
    data: bytes
    cuts: int
    outer: bool = False


@dataclass(slots=True)
class Tally:
    """The sessions done so far."""

    sessions: Counter[str] = field(default_factory=Counter)
    offences: Counter[str] = field(default_factory=Counter)
    findings: list[Finding] = field(default_factory=list)


def fuzz_live(seed: str, seconds: float) -> list[Finding]:
    """Attack running processes, plaintext first, then with TLS; returns the findings."""
    tally = Tally()
    for tls, share in ((False, 1 - _TLS_SHARE), (True, _TLS_SHARE)):
        with tempfile.TemporaryDirectory(prefix="waltz-fuzz-") as folder:
            asyncio.run(_attack(Path(folder), seed, tls, seconds * share, tally))
    print(f"{'port':34} {'sessions':>9} {'to be closed':>13}")
    for name, count in sorted(tally.sessions.items()):
        print(f"{name:34} {count:9} {tally.offences[name]:13}")
    return tally.findings


async def _attack(folder: Path, seed: str, tls: bool, seconds: float, tally: Tally) -> None:
    deadline = time.monotonic() + seconds
    async with Scene(folder, tls=tls) as scene:
        number = 0
        while time.monotonic() < deadline and len(tally.findings) < _MOST_FINDINGS:
            random = Random(f"{seed}/live/{tls}/{number}")
            sessions = [
                _session(random, random.choice(scene.target_ports)) for _ in range(_SESSIONS)
            ]
            try:
                await _burst(scene, sessions, number, tally)
            except (Exception, ExceptionGroup):
                tally.findings.append(_finding(seed, number, sessions))
                if None in scene.pids().values():
                    return
            number += 1
        try:
            await scene.read_back()
            await scene.stop_spare()
        except Exception:
            tally.findings.append(_finding(seed, number, []))


async def _burst(scene: Scene, sessions: list[Session], number: int, tally: Tally) -> None:
    """Run several sessions and the honest client at the same time."""
    for log in scene.logs:
        log.forget()
    *ports, _ = await asyncio.gather(*map(_send, sessions), scene.append_as_valid_client(number))
    for session, port in zip(sessions, ports, strict=True):
        assert isinstance(port, int)
        name = f"{session.door.name}{', TLS' if session.door.tls else ''}"
        tally.sessions[name] += 1
        tally.offences[name] += await _check_line(session, port)
    scene.check_processes()
    if number % _CHECK_EVERY == 0:
        await scene.read_back()
        await scene.check_spare()


def _session(random: Random, door: TargetPort) -> Session:
    cuts = random.randrange(1 << 30)
    if door.tls is not None and random.random() < 0.3:
        data = mutate(random, _client_hello(), _HTTP[0])
        return Session(door, data, cuts, outer=True)
    if door.spec is None:
        data = b"".join(random.choices(_HTTP, k=random.randrange(1, 4)))
        for _ in range(random.randrange(3)):
            data = mutate(random, data, random.choice(_HTTP))
        return Session(door, data, cuts)
    data, other = (
        make_conversation(random, door.spec, door.messages, requests=True) for _ in range(2)
    )
    for _ in range(random.choice((0, 1, 1, 2))):
        data = change(random, door.spec, door.messages, data, other)
    return Session(door, data, cuts)


def _client_hello() -> bytes:
    """Return the first bytes of a TLS handshake."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    incoming, outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
    handshake = context.wrap_bio(incoming, outgoing, server_hostname="a")
    with contextlib.suppress(ssl.SSLWantReadError):
        handshake.do_handshake()
    return outgoing.read()


async def _send(session: Session) -> int:
    """Send all of a session and read until the end; returns the local port."""
    context = None if session.outer else session.door.tls
    reader, writer = await asyncio.open_connection(HOST, session.door.port, ssl=context)
    port: int = writer.get_extra_info("sockname")[1]
    try:
        async with asyncio.timeout(_CLOSE_SECONDS):
            await asyncio.gather(_write(session, writer), _read_all(reader))
    except TimeoutError:
        raise Broken(f"{session.door.name}: the connection is not closed after its end") from None
    finally:
        writer.close()
        with contextlib.suppress(OSError):
            await writer.wait_closed()
    return port


async def _write(session: Session, writer: asyncio.StreamWriter) -> None:
    with contextlib.suppress(OSError):
        for piece in pieces(Random(session.cuts), session.data):
            writer.write(piece)
            await writer.drain()
            await asyncio.sleep(0)
        if writer.can_write_eof():
            writer.write_eof()
        else:
            writer.close()


async def _read_all(reader: asyncio.StreamReader) -> None:
    with contextlib.suppress(OSError):
        while await reader.read(_READ_BYTES):
            continue


async def _check_line(session: Session, port: int) -> bool:
    """Return whether the process had to close the connection; check its line in the log."""
    door, spec = session.door, session.door.spec
    if spec is None:
        return False
    why = "no handshake" if session.outer else expected_violation(spec, door.messages, session.data)
    if door.tls is not None and not session.outer:
        # TLS cannot close only one direction: data unread at the peer's close are never read.
        why = None
    if why is not None:
        try:
            await eventually(lambda: door.log.of_peer(spec, port), _LINE_SECONDS)
        except AssertionError:
            raise Broken(f"{door.name}: no line about a connection with {why}") from None
    # An answer that closes the connection may follow a close by the peer inside a frame.
    lines = [line for line in door.log.of_peer(spec, port) if not line.endswith("within a frame")]
    hold(len(lines) <= 1, f"{door.name}: several lines about one connection: {lines}")
    return why is not None


def _finding(seed: str, number: int, sessions: list[Session]) -> Finding:
    data = pack([(session.door.name, session.data) for session in sessions])
    return Finding("live", seed, number, traceback.format_exc(limit=-4), data)
