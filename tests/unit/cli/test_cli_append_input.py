"""How ``waltz log append`` divides its input into transactions."""

from __future__ import annotations

import io
from pathlib import Path

import pytest
from typer.testing import CliRunner

from waltz.cli.app import app
from waltz.cli.log.input import MAX_RECORD_BYTES, Framing, opened, records
from waltz.cli.running import Failed


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
async def test_input_that_ends_within_a_record_fails_after_the_others(rest: bytes) -> None:
    found = records(io.BytesIO(framed(b"whole") + rest), Framing.LENGTH)
    assert await anext(found) == b"whole"
    with pytest.raises(Failed, match="ends within record 1; the records before it are appended"):
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
