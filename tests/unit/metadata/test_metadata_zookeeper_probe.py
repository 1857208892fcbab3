"""A ZooKeeper that opens no session: what a probe of its servers finds, and what the error says."""

from __future__ import annotations

import asyncio
import errno
import socket
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest

from tests.support.event_loops import NewLoop, both_loops, run_on
from tests.support.several_addresses import SILENT, give_addresses
from waltz.metadata import kazoo_store, zookeeper_probe
from waltz.metadata.core.zookeeper_answers import (
    judge_answer,
    split_connect_string,
    why_no_session,
)
from waltz.metadata.kazoo_store import ConnectFailed, KazooStore
from waltz.metadata.zookeeper_probe import probe_zookeeper


@pytest.mark.parametrize(
    ("answer", "clause"),
    [
        (b"Zookeeper version: 3.9\nMode: follower\nNode count: 5\n", "answers as follower"),
        (b"srvr is not executed because it is not in the whitelist.\n", "does not allow"),
        (b"", "may use TLS"),
        (b"HTTP/1.1 400 Bad Request\r\n", "not answer like a ZooKeeper"),
    ],
)
def test_judge_answer_names_the_problem(answer: bytes, clause: str) -> None:
    assert clause in judge_answer(answer)


def test_connect_string_is_split_into_addresses() -> None:
    assert split_connect_string("a:1,b, [::1]:3,[::2],:,x:y/chroot") == [
        ("a", 1),
        ("b", 2181),
        ("::1", 3),
        ("::2", 2181),
    ]


@pytest.mark.parametrize(
    ("number", "answer"),
    [
        (errno.ECONNREFUSED, "cannot be reached (Connection refused)"),
        (errno.ETIMEDOUT, "cannot be reached (Connection timed out)"),
        (None, "gave no answer within 5 s"),
    ],
)
async def test_probe_of_a_zookeeper_server_without_connection_says_why(
    number: int | None, answer: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def fail(*_: object) -> None:
        raise TimeoutError if number is None else OSError(number, "Connect call failed ('a', 1)")

    monkeypatch.setattr(zookeeper_probe, "open_streams", fail)
    answers = await probe_zookeeper("a:1,[2001:db8::1]:2", timeout_seconds=5)
    assert answers == {"a:1": answer, "[2001:db8::1]:2": answer}


async def test_probe_of_an_unknown_host_reports_it(monkeypatch: pytest.MonkeyPatch) -> None:
    async def fail(*_: object) -> None:
        raise socket.gaierror(socket.EAI_NONAME, "Name or service not known")

    monkeypatch.setattr(zookeeper_probe, "open_streams", fail)
    assert await probe_zookeeper("zk:1", timeout_seconds=5) == {
        "zk:1": "cannot be reached (unknown host: Name or service not known)"
    }


@pytest.mark.parametrize(
    ("answers", "tls", "remedy"),
    [
        (
            {"a:1": "cannot be reached (Connection refused)"},
            False,
            "; check that ZooKeeper is running and that the address is right",
        ),
        (
            {"a:1": "cannot be reached (Connection refused)"},
            True,
            "; check that ZooKeeper is running and that the address is right",
        ),
        (
            {"a:1": "cannot be reached (Connection refused)", "b:1": "gave no answer within 1 s"},
            False,
            ", b:1 gave no answer within 1 s; check that it is running, and if its port uses TLS,"
            " set zookeeper.tls.* in the settings file (--cluster of the command line), or"
            " zookeeper_access of waltz.connect",
        ),
        (
            {"a:1": "gave no answer within 1 s"},
            True,
            "; check that it is running, that its port uses TLS, and that it accepts the"
            " certificate of zookeeper.tls.certificate",
        ),
    ],
)
def test_text_about_a_missing_session_has_the_answers_and_the_remedy(
    answers: dict[str, str], tls: bool, remedy: str
) -> None:
    text = why_no_session(answers, tls=tls)
    assert text.startswith(f"a:1 {answers['a:1']}")
    assert text.endswith(remedy)


class AnswerInParts:
    """Both ends of a connection to a server whose answer arrives in several parts."""

    def __init__(self, *parts: bytes) -> None:
        self._parts = iter((*parts, b""))

    async def read(self, _: int) -> bytes:
        return next(self._parts)

    def write(self, _: bytes) -> None:
        return

    def close(self) -> None:
        return

    async def wait_closed(self) -> None:
        return


async def test_probe_reads_an_answer_that_arrives_in_parts(monkeypatch: pytest.MonkeyPatch) -> None:
    async def connect(*_: object) -> tuple[AnswerInParts, AnswerInParts]:
        connection = AnswerInParts(b"Zookeeper version: 3.9\nMo", b"de: leader\n")
        return connection, connection

    monkeypatch.setattr(zookeeper_probe, "open_streams", connect)
    assert await probe_zookeeper("zk:1", timeout_seconds=5) == {"zk:1": "answers as leader"}


@both_loops
def test_probe_of_a_host_whose_first_address_is_silent_uses_the_second(
    new_loop: NewLoop, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def answer(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(b"Zookeeper version: 3.9\nMode: leader\n")
        writer.close()

    async def probe() -> dict[str, str]:
        async with await asyncio.start_server(answer, "127.0.0.1", 0) as listening:
            give_addresses(monkeypatch, (SILENT, 1), listening.sockets[0].getsockname())
            return await probe_zookeeper("two.test:1", timeout_seconds=5)

    assert run_on(new_loop, probe()) == {"two.test:1": "answers as leader"}


@asynccontextmanager
async def silent_port() -> AsyncIterator[str]:
    """Accept connections, and never send a byte; yield the address."""
    ended = asyncio.Event()

    async def wait(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await ended.wait()
        writer.close()

    async with await asyncio.start_server(wait, "127.0.0.1", 0) as listening:
        yield f"127.0.0.1:{listening.sockets[0].getsockname()[1]}"
        ended.set()


async def test_session_that_cannot_be_established_is_an_error_with_the_reason(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(kazoo_store, "_PROBE_SECONDS", 0.1)
    with pytest.raises(ConnectFailed) as refused:
        await KazooStore.connect("127.0.0.1:1", 1000, connect_timeout_s=0.1)
    assert str(refused.value) == (
        "no ZooKeeper session was established at 127.0.0.1:1 within 0.1 s: 127.0.0.1:1 cannot be "
        "reached (Connection refused); check that ZooKeeper is running and that the address is "
        "right"
    )
    assert refused.value.__suppress_context__
    async with silent_port() as address:
        with pytest.raises(ConnectFailed) as silent:
            await KazooStore.connect(address, 1000, connect_timeout_s=0.1)
    assert f"{address} gave no answer within 0.1 s; check" in str(silent.value)
    assert silent.value.answers == {address: "gave no answer within 0.1 s"}
