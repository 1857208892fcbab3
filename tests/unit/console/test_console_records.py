"""How the console shows data: format, hostile characters, bounds; and the names it answers to."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from waltz.console.core.hosts import allowed_names, host_name, is_loopback, refusal
from waltz.console.core.records import (
    MAX_JSON_BYTES,
    MAX_SHOWN_BYTES,
    DataFormat,
    parse_request_id,
    show_data,
    show_record,
    visible,
)
from waltz.protocol.records import Record, ReqId


@pytest.mark.parametrize(
    ("data", "format_", "text"),
    [
        (b"", DataFormat.TEXT, ""),
        (b"hello", DataFormat.TEXT, "hello"),
        (b'{"a": 1}', DataFormat.JSON, '{"a": 1}'),
        (b"[1,2", DataFormat.TEXT, "[1,2"),
        (b"12", DataFormat.TEXT, "12"),
        (b"\xff\x00", DataFormat.HEX, None),
        (b"\x00\x01\x02\x03", DataFormat.HEX, None),
    ],
)
def test_automatic_format_fits_the_data(data: bytes, format_: DataFormat, text: str | None) -> None:
    shown = show_data(data, DataFormat.AUTO)
    assert (shown.format, shown.size, shown.truncated) == (format_, len(data), False)
    assert text is None or shown.text == text


def test_hex_has_offsets_bytes_and_ascii() -> None:
    lines = show_data(bytes(range(60, 80)), DataFormat.HEX).text.splitlines()
    assert lines == [
        "00000000  3c 3d 3e 3f 40 41 42 43 44 45 46 47 48 49 4a 4b  <=>?@ABCDEFGHIJK",
        "00000010  4c 4d 4e 4f" + 36 * " " + "  LMNO",
    ]


def test_long_json_is_indented() -> None:
    value = {"name": "x" * 200}
    assert show_data(json.dumps(value).encode(), DataFormat.AUTO).text == json.dumps(
        value, indent=2
    )


@pytest.mark.parametrize("wanted", [DataFormat.JSON, DataFormat.TEXT])
def test_data_without_the_wanted_format_are_hex_with_a_notice(wanted: DataFormat) -> None:
    shown = show_data(b"\xff\xfe", wanted)
    assert shown.format is DataFormat.HEX
    assert shown.notice is not None
    assert "shown as hex" in shown.notice


def test_large_data_are_cut_with_a_notice() -> None:
    data = b"x" * (MAX_SHOWN_BYTES + 1)
    shown = show_data(data, DataFormat.TEXT)
    assert (len(shown.text), shown.truncated) == (MAX_SHOWN_BYTES, True)
    assert shown.notice == f"the first 4096 bytes of {len(data)}"
    assert show_data(data[:-1], DataFormat.TEXT).notice is None


def test_character_divided_by_the_cut_is_left_out() -> None:
    data = b"x" * (MAX_SHOWN_BYTES - 1) + "é".encode() + b"y"
    shown = show_data(data, DataFormat.TEXT)
    assert (shown.format, len(shown.text)) == (DataFormat.TEXT, MAX_SHOWN_BYTES - 1)


def test_json_that_is_too_large_is_not_parsed() -> None:
    data = b"[" + b"1," * MAX_JSON_BYTES + b"1]"
    assert show_data(data, DataFormat.JSON).format is DataFormat.HEX
    assert show_data(data, DataFormat.AUTO).format is DataFormat.TEXT
    cut = show_data(json.dumps(["y" * MAX_SHOWN_BYTES]).encode(), DataFormat.JSON)
    assert cut.truncated
    assert len(cut.text) == MAX_SHOWN_BYTES


def test_deeply_nested_json_is_shown_as_text() -> None:
    assert show_data(b"[" * 5000, DataFormat.AUTO).format is DataFormat.TEXT


def test_hostile_characters_are_escaped() -> None:
    assert visible("a\x00\x1b[2J\u202eb\u2066\u200b\x85\ue000c\n\td") == (
        "a\\x00\\x1b[2J\\u202eb\\u2066\\u200b\\x85\\ue000c\n\td"
    )
    assert visible("Grüße\u00a0你好") == "Grüße 你好"


def test_hostile_character_beyond_16_bits_has_an_escape_of_8_digits() -> None:
    assert visible("\U000e00011") == "\\U000e00011"


@given(st.binary(max_size=300), st.sampled_from(list(DataFormat)))
def test_every_data_is_shown_with_visible_characters(data: bytes, wanted: DataFormat) -> None:
    shown = show_data(data, wanted)
    assert all(each.isprintable() or each in "\n\t" for each in shown.text)
    assert json.loads(json.dumps(shown.text)) == shown.text


def test_record_has_the_parts_of_its_request_id() -> None:
    shown = show_record(Record(17, ReqId(12, 3, 0, 9), -5, b"x", 0), DataFormat.AUTO)
    assert (shown.id, shown.client_id, shown.generation, shown.seq, shown.header) == (
        17,
        12,
        3,
        9,
        -5,
    )


def test_line_ends_of_two_characters_are_shown_as_line_ends() -> None:
    shown = show_data(b"one\r\ntwo\r\nthree\rfour\r\n", DataFormat.AUTO)
    assert (shown.format, shown.text) == (DataFormat.TEXT, "one\ntwo\nthree\\x0dfour\n")


@pytest.mark.parametrize(
    "text",
    ["12:3:0:17", " 12 / 3 / 0 / 17 ", "ReqId(client_id=12, generation=3, partition=0, seq=17)"],
)
def test_request_id_is_read_from_any_text_with_four_numbers(text: str) -> None:
    assert parse_request_id(text) == ReqId(12, 3, 0, 17)


@pytest.mark.parametrize("text", ["", "12", "1:2:3", "1:2:3:4:5", "1:2:3:99999999999", "x" * 999])
def test_other_texts_are_no_request_id(text: str) -> None:
    with pytest.raises(ValueError, match=r"request id"):
        parse_request_id(text)


@pytest.mark.parametrize(
    ("header", "name"),
    [
        ("localhost:8321", "localhost"),
        ("127.0.0.1", "127.0.0.1"),
        ("[::1]:8321", "::1"),
        ("EVIL.example:80", "evil.example"),
        ("", ""),
    ],
)
def test_host_name_has_no_port(header: str, name: str) -> None:
    assert host_name(header) == name


def test_only_known_names_are_answered() -> None:
    allowed = allowed_names("127.0.0.1", ["Console.Example"])
    for host in ("127.0.0.1:1", "localhost:1", "[::1]:1", "console.example"):
        assert refusal(host, None, allowed) is None
        assert refusal(host, "same-origin", allowed) is None
        assert refusal(host, "none", allowed) is None
    for other in ("evil.example", "localhost.evil.example", "127.0.0.1.evil.example", "", None):
        assert refusal(other, None, allowed) is not None
    for site in ("cross-site", "same-site"):
        assert refusal("localhost", site, allowed) is not None


def test_loopback_is_recognised() -> None:
    assert all(map(is_loopback, ("127.0.0.1", "::1", "localhost", "127.1.2.3")))
    assert not any(map(is_loopback, ("0.0.0.0", "10.0.0.1", "console.example", "::")))
