"""Test ``-o template=…``: lines from the fields of a result, and one line for each mistake."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import typer
from typer.testing import CliRunner

from waltz.cli.app import app
from waltz.cli.output import Format, parse_output, show, show_line
from waltz.cli.rows import Rendering
from waltz.cli.template import BadTemplate, Template

REPLICAS = [{"storage": "s:1", "mark": 7}, {"storage": "s:2", "mark": None}]
RESULT = {
    "name": "orders",
    "quota": {"bytes": 5, "open": True},
    "owner": None,
    "partitions": [
        {"partition": 0, "server": 3, "replicas": REPLICAS},
        {"partition": 1, "server": None, "replicas": []},
    ],
    "servers": [{"id": 3, "preferred": [0, 1]}],
}


def lines(template: str, value: Any = RESULT) -> list[str]:
    return Template.parse(template).lines(value)


@pytest.fixture
def profiles(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Two profiles, so that ``waltz profile list`` has rows without a cluster."""
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path))
    file = tmp_path / "waltz" / "profiles.json"
    file.parent.mkdir()
    each = {"root": "/r", "tls": "on"}
    named = {"a": {"zookeeper": "z:1", **each}, "b": {"zookeeper": "z:2", **each}}
    file.write_text(json.dumps({"used": "a", "profiles": named}))


def invoke(*arguments: str) -> tuple[int, str, str]:
    result = CliRunner().invoke(app, arguments, prog_name="waltz")
    return result.exit_code, result.stdout, result.stderr


@pytest.mark.parametrize(
    ("template", "expected"),
    [
        ("{name}", ["orders"]),
        ("{quota.bytes}", ["5"]),
        ("at {name}: {quota.open}!", ["at orders: true!"]),
        ("{{{name}}}", ["{orders}"]),
        ("{owner} {owner.name}", ["null null"]),
        ("{quota}", ['{"bytes": 5, "open": true}']),
        ("{partitions.partition} {partitions.server}", ["0 3", "1 null"]),
        ("{name}/{partitions.partition}", ["orders/0", "orders/1"]),
        ("{servers.id} {servers.preferred}", ["3 [0, 1]"]),
        (
            "{partitions.partition} {partitions.replicas.storage}={partitions.replicas.mark}",
            ["0 s:1=7", "0 s:2=null"],
        ),
    ],
)
def test_template_line_has_fields_of_each_row(template: str, expected: list[str]) -> None:
    assert lines(template) == expected


def test_template_of_a_list_has_a_line_for_each_item() -> None:
    assert lines("{a}", [{"a": "ä b"}, {"a": 1.5}]) == ["ä b", "1.5"]
    assert lines("{a}", []) == []


@pytest.mark.parametrize(
    ("template", "unknown"),
    [
        ("{nmae}", "nmae"),
        ("{name.first}", "name.first"),
        ("{name.first.second}", "name.first"),
        ("{partitions.sever}", "partitions.sever"),
        ("{partitions.replicas.x}", "partitions.replicas.x"),
        ("{name.__class__}", "name.__class__"),
        ("{servers[0]}", "servers[0]"),
        ("{}", ""),
    ],
)
def test_unknown_field_error_names_all_fields(template: str, unknown: str) -> None:
    with pytest.raises(BadTemplate) as caught:
        lines(template)
    assert str(caught.value) == (
        f"the result has no field {unknown!r}; its fields are: name, quota.bytes, quota.open, "
        "owner, partitions.partition, partitions.server, partitions.replicas.storage, "
        "partitions.replicas.mark, partitions.replicas, servers.id, servers.preferred"
    )


def test_fields_of_two_lists_are_an_error() -> None:
    with pytest.raises(BadTemplate, match=r"^partitions and servers are separate lists: use "):
        lines("{partitions.partition} {servers.id}")


@pytest.mark.parametrize(
    ("template", "expected"),
    [
        ("", "it has no field: write each field in braces, such as {name}"),
        ("name", "it has no field"),
        ("{{name}}", "it has no field"),
        ("{name", "write a field as {name}, and a brace as {{ or }}"),
        ("name}", "write a field as {name}, and a brace as {{ or }}"),
        ("{a{b}}", "write a field as {name}, and a brace as {{ or }}"),
        ("{name:>9}", "the field 'name' is followed by a format: write only its name in braces"),
        ("{name!r}", "the field 'name' is followed by a format: write only its name in braces"),
    ],
)
def test_malformed_template_is_a_usage_error_of_one_line(template: str, expected: str) -> None:
    with pytest.raises(BadTemplate) as caught:
        Template.parse(template)
    assert expected in str(caught.value)
    status, printed, error = invoke("profile", "list", "-o", f"template={template}")
    assert (status, printed, error.count("\n")) == (2, "", 1)
    assert error.startswith("waltz: Invalid value for '--output' / '-o': the template cannot be ")
    assert expected in error


@pytest.mark.parametrize("value", ["xml", "template", "TABLE", ""])
def test_unknown_format_error_names_the_formats(value: str) -> None:
    with pytest.raises(typer.BadParameter) as caught:
        parse_output(value)
    assert caught.value.message == (f"{value!r} is not one of table, json, yaml and template=TEXT")


def test_output_option_accepts_each_format() -> None:
    assert [parse_output(str(each)) for each in Format] == list(Format)
    assert parse_output("template={a.b}=") == Template((("", ("a", "b")), ("=", None)))


@pytest.mark.usefixtures("profiles")
def test_verb_with_template_prints_one_line_for_each_row() -> None:
    assert invoke("profile", "list", "-o", "template={name}\t{zookeeper}") == (
        0,
        "a\tz:1\nb\tz:2\n",
        "",
    )


@pytest.mark.usefixtures("profiles")
def test_verb_with_unknown_field_fails_with_one_line() -> None:
    status, printed, error = invoke("profile", "list", "-o", "template={name} {zookeper}")
    assert (status, printed) == (1, "")
    assert error == (
        "waltz: cannot fill the template: the result has no field 'zookeper'; its fields are: "
        "name, used, zookeeper, root, tls, access; see: waltz profile list --help\n"
    )


def test_append_with_unknown_field_is_refused_before_it_connects() -> None:
    arguments = ("log", "append", "0", "x", "-z", "127.0.0.1:1", "-o", "template={nr}")
    status, printed, error = invoke(*arguments)
    assert (status, printed) == (2, "")
    assert "the result has no field 'nr'; its fields are: partition, id;" in error


def test_template_prints_fields_that_the_table_lacks(capsys: pytest.CaptureFixture[str]) -> None:
    template = Template.parse("{partition}:{id}")
    show(template, Rendering([{"partition": 1, "id": 2}], ()))
    show_line(template, {"partition": 3, "id": 4}, "4")
    assert capsys.readouterr().out == "1:2\n3:4\n"


@pytest.mark.parametrize(
    ("typed", "expected"),
    [("", ["table", "json", "yaml", "template="]), ("t", ["table", "template="]), ("x", [])],
)
def test_shell_completes_formats(typed: str, expected: list[str]) -> None:
    completion = {
        "_WALTZ_COMPLETE": "complete_bash",
        "COMP_WORDS": f"waltz profile list -o {typed}",
        "COMP_CWORD": "4",
    }
    completed = CliRunner().invoke(app, [], env=completion, prog_name="waltz")
    assert completed.stdout.split() == expected
