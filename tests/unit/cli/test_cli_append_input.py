"""How ``waltz log append`` divides its input into transactions."""

from __future__ import annotations

import io
import os
import pty
import signal
import subprocess
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from waltz.cli.app import app
from waltz.cli.log import commands
from waltz.cli.log.input import MAX_RECORD_BYTES, Framing, opened, records
from waltz.cli.running import Failed
from waltz.client import AppendUncertain
from waltz.protocol import ReqId


async def divided(content: bytes, framing: Framing) -> list[bytes]:
    return [each async for each in records(io.BytesIO(content), framing)]


def framed(*contents: bytes) -> bytes:
    return b"".join(len(each).to_bytes(4, "big") + each for each in contents)


async def test_lines_are_records_without_their_ends() -> None:
    assert await divided(b"a\n\nb", Framing.LINES) == [b"a", b"", b"b"]
    assert await divided(b"", Framing.LINES) == []


async def test_whole_input_is_one_record_with_all_its_bytes() -> None:
    assert await divided(b"\x00a\n\xff\n", Framing.ONE) == [b"\x00a\n\xff\n"]
    assert await divided(b"", Framing.ONE) == [b""]


async def test_records_follow_their_lengths() -> None:
    assert await divided(framed(b"\n\n", b"", b"x" * 300), Framing.LENGTH) == [
        b"\n\n",
        b"",
        b"x" * 300,
    ]


@pytest.mark.parametrize("rest", [b"\x00", b"\x00\x00\x00\x02a"])
async def test_input_that_ends_within_a_record_fails_after_its_whole_records(rest: bytes) -> None:
    found = records(io.BytesIO(framed(b"whole") + rest), Framing.LENGTH)
    assert await anext(found) == b"whole"
    with pytest.raises(Failed, match="ends within record 1, so this record is not appended"):
        await anext(found)


async def test_text_that_has_no_lengths_is_recognized() -> None:
    with pytest.raises(Failed, match="record 0 of the input would have 1751477356 bytes"):
        await divided(b"hello world", Framing.LENGTH)


async def test_input_above_the_largest_record_is_refused() -> None:
    with pytest.raises(Failed, match="exceeds 64 MiB"):
        await divided(bytes(MAX_RECORD_BYTES + 1), Framing.ONE)


def test_dash_is_standard_input(tmp_path: Path) -> None:
    (tmp_path / "f").write_bytes(b"x")
    with opened(tmp_path / "f") as file:
        assert file.read() == b"x"
    with opened(Path("-")) as one, opened(None) as other:
        assert one is other


def test_data_and_file_together_are_refused(tmp_path: Path) -> None:
    command = ["log", "append", "0", "data", "--from", str(tmp_path), "-z", "127.0.0.1:1"]
    result = CliRunner().invoke(app, command)
    assert result.exit_code == 2
    assert "give either DATA" in result.stderr


class Client:
    """A client whose appends fail with ``error``; those of ``refused`` data are in doubt."""

    def __init__(self, error: Exception | None = None) -> None:
        self._error = error
        self.refused = b""
        self.appended: list[bytes] = []

    async def append(self, _partition: int, data: bytes, **_: object) -> int:
        if data in self.refused.split():
            raise AppendUncertain(0, ReqId(17, 3, 0, data[0]), f"no outcome of {data.decode()}")
        if self._error is not None:
            raise self._error
        self.appended.append(data)
        return 17

    async def close(self) -> None:
        raise AssertionError("only an interrupted verb closes the client itself")


@pytest.fixture
def client(monkeypatch: pytest.MonkeyPatch) -> Client:
    """The client of the verb, without a cluster."""
    made = Client()

    @asynccontextmanager
    async def open_client(*_: object) -> AsyncIterator[Any]:
        yield made

    monkeypatch.setattr(commands, "open_client", open_client)
    return made


@pytest.mark.usefixtures("client")
@pytest.mark.parametrize(
    ("content", "printed"), [("", "nothing was appended: the input is empty\n"), ("x\n", "")]
)
def test_append_of_empty_input_says_that_nothing_was_appended(content: str, printed: str) -> None:
    result = CliRunner().invoke(app, ["log", "append", "0", "-z", "z:1"], input=content)
    assert (result.exit_code, result.stderr) == (0, printed)


def test_append_of_an_argument_that_is_not_utf8_appends_its_bytes(client: Client) -> None:
    argument = os.fsdecode(b"a\xff")
    result = CliRunner().invoke(app, ["log", "append", "0", argument, "-z", "z:1"])
    assert (result.exit_code, client.appended) == (0, [b"a\xff"])


@pytest.mark.parametrize("reason", ["no outcome within 1 s", "lost (ZooKeeper): find it"])
def test_append_in_doubt_names_commands_with_the_options_given(client: Client, reason: str) -> None:
    client._error = AppendUncertain(0, ReqId(17, 3, 0, 42), reason)
    where = ["-z", "z:1", "-r", "/r"]
    result = CliRunner().invoke(app, ["log", "append", "0", "x", *where])
    options = "--zookeeper z:1 --root /r"
    assert (result.exit_code, result.stderr) == (
        1,
        f"waltz: partition 0: an append was sent as 17:3:0:42 and is in doubt ({reason}); "
        "before you append it again, find its outcome with: waltz log find 17:3:0:42 "
        f"{options}; find the cause with: waltz doctor {options}\n",
    )


@pytest.mark.parametrize("in_flight", ["2", "8"])
def test_append_of_lines_shows_every_id_and_every_error(client: Client, in_flight: str) -> None:
    client.refused = b"b c"
    command = ["log", "append", "0", "-z", "z:1", "--in-flight", in_flight]
    result = CliRunner().invoke(app, command, input="a\nb\nc\nd\n")
    assert result.exit_code == 1
    assert result.stdout.split() == ["17"] * (1 if in_flight == "2" else 2)
    for each in "bc":
        assert f"find its outcome with: waltz log find 17:3:0:{ord(each)} -" in result.stderr


@pytest.mark.parametrize("in_flight", ["1", "2", "3"])
def test_append_that_fails_before_the_input_does_is_the_error_of_the_command(
    client: Client, tmp_path: Path, in_flight: str
) -> None:
    """With one append in flight, the input is not read any further after the failed append."""
    client.refused = b"b"
    (tmp_path / "short.bin").write_bytes(framed(b"a", b"b") + b"\x00")
    command = ["log", "append", "0", "--from", str(tmp_path / "short.bin"), "-z", "z:1"]
    result = CliRunner().invoke(app, [*command, "--framing", "length", "--in-flight", in_flight])
    assert (result.exit_code, result.stdout) == (1, "17\n")
    *others, error = result.stderr.splitlines()
    assert error.startswith("waltz: partition 0: an append was sent as 17:3:0:98 and is in doubt")
    ends = "another error: the input ends within record 2, so this record is not appended"
    assert others == ([] if in_flight == "1" else [ends])


def test_append_of_input_that_ends_early_names_the_record_that_is_not_appended(
    client: Client, tmp_path: Path
) -> None:
    (tmp_path / "short.bin").write_bytes(framed(b"a", b"b") + b"\x00")
    command = ["log", "append", "0", "--from", str(tmp_path / "short.bin"), "-z", "z:1"]
    result = CliRunner().invoke(app, [*command, "--framing", "length", "--in-flight", "2"])
    assert (result.exit_code, result.stdout) == (1, "17\n17\n")
    text = "waltz: the input ends within record 2, so this record is not appended\n"
    assert (result.stderr, client.appended) == (text, [b"a", b"b"])


_READ_STANDARD_INPUT = """
import signal
from waltz.cli.log.input import Framing, opened, records
from waltz.cli.running import run

async def read():
    with opened(None) as stream:
        print("ready", flush=True)
        async for record in records(stream, Framing.LINES):
            print(record, flush=True)

signal.signal(signal.SIGINT, signal.default_int_handler)
run(read(), seconds=None)
"""


def test_interruption_ends_a_command_that_waits_for_standard_input() -> None:
    command = [sys.executable, "-c", _READ_STANDARD_INPUT]
    with subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE
    ) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        assert process.stderr is not None
        assert process.stdout.readline() == b"ready\n"
        process.stdin.write(b"a\n")
        process.stdin.flush()
        assert process.stdout.readline() == b"b'a'\n"
        process.send_signal(signal.SIGINT)
        try:
            status = process.wait(60)
        finally:
            process.kill()
        assert status in (130, -signal.SIGINT), process.stderr.read()
        assert b"Fatal" not in process.stderr.read()


def test_append_at_a_terminal_says_that_lines_are_read() -> None:
    """The client of this program is that of the fixture; see there."""
    program = (
        "import sys\n"
        "from contextlib import asynccontextmanager\n"
        "from types import SimpleNamespace\n"
        "from waltz.cli.app import app\n"
        "from waltz.cli.log import commands\n"
        "@asynccontextmanager\n"
        "async def open_client(*_):\n"
        "    yield SimpleNamespace(close=None)\n"
        "commands.open_client = open_client\n"
        "app(['log', 'append', '0', '-z', 'z:1'])\n"
    )
    terminal, other_end = pty.openpty()
    try:
        with subprocess.Popen(
            [sys.executable, "-c", program], stdin=other_end, stderr=subprocess.PIPE, text=True
        ) as process:
            assert process.stderr is not None
            said = process.stderr.readline()
            os.write(terminal, b"\x04")
            _, rest = process.communicate(timeout=60)
    finally:
        os.close(terminal)
        os.close(other_end)
    assert said == "reading lines from standard input until Ctrl-D\n"
    assert rest == "nothing was appended: the input is empty\n"
