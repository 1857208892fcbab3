"""The programs of peers: load generators by their standard input, and where programs come from."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import pytest

from bench.peers import go_programs, kafka_jars
from bench.peers.kafka import broker_settings
from bench.peers.kafka_jars import kafka_version
from bench.peers.load_program import load_program
from bench.peers.measured import PeerMissing
from bench.peers.processes import CommandFailed, Servers

GENERATOR = """
import json, sys
for line in sys.stdin:
    if line == "fail\\n":
        sys.exit("no leader")
    print(json.dumps({"words": line.split()}), flush=True)
"""


async def test_load_program_answers_each_command(tmp_path: Path) -> None:
    log = tmp_path / "log"
    async with load_program(sys.executable, "-c", GENERATOR, log=log) as program:
        assert await program.command("append", 3, 0.5) == {"words": ["append", "3", "0.5"]}
        assert await program.command("close") == {"words": ["close"]}


RECORDER = """
import json, sys
log = open(sys.argv[1], "w")
for line in sys.stdin:
    log.write(line)
    log.flush()
    times = {"seconds": 2.0, "p50_ms": 1.0, "p99_ms": 3.0, "client_seconds": 0.5}
    print(json.dumps(times | {"records": int(line.split()[1])} if " " in line else {}), flush=True)
"""


async def test_load_program_counts_only_the_records_after_a_tenth_of_them(tmp_path: Path) -> None:
    commands = tmp_path / "commands"
    command = (sys.executable, "-c", RECORDER, commands)
    async with load_program(*command, log=tmp_path / "log") as program:
        measured = await program.append(200, Servers())
    assert (measured.records, measured.rate) == (200, 100.0)
    assert [line.split()[:2] for line in commands.read_text().splitlines()] == [
        ["append", "21"],
        ["append", "200"],
        ["close"],
    ]


async def test_load_program_that_ends_raises_what_it_printed(tmp_path: Path) -> None:
    log = tmp_path / "log"
    async with load_program(sys.executable, "-c", GENERATOR, log=log) as program:
        with pytest.raises(CommandFailed, match="ended at 'fail': no leader"):
            await program.command("fail")


def test_kafka_version_is_that_of_the_jar_of_the_broker() -> None:
    names = ["kafka-clients-4.2.0.jar", "kafka_2.13-4.3.1.jar", "slf4j-api-1.7.36.jar"]
    assert kafka_version(names) == "4.3.1"


def test_kafka_version_without_a_broker_is_none() -> None:
    assert kafka_version(["kafka-clients-4.2.0.jar"]) is None


def test_broker_settings_name_all_voters_and_the_own_ports() -> None:
    lines = broker_settings(1, [11, 12, 13], [21, 22, 23]).splitlines()
    assert "node.id=1" in lines
    assert "controller.quorum.voters=0@127.0.0.1:21,1@127.0.0.1:22,2@127.0.0.1:23" in lines
    assert "listeners=CLIENTS://127.0.0.1:12,CONTROLLER://127.0.0.1:22" in lines


@pytest.fixture
def built(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The folder of built programs; the PATH has no program."""
    folder = tmp_path / "built"
    folder.mkdir()
    monkeypatch.setattr(go_programs, "BUILT", folder)
    monkeypatch.setattr(kafka_jars, "BUILT", folder)
    monkeypatch.setenv("PATH", str(tmp_path / "bin"))
    return folder


@pytest.fixture
def source(tmp_path: Path) -> Path:
    folder = tmp_path / "source"
    folder.mkdir()
    (folder / "main.go").write_text("package main")
    return folder


def install(tmp_path: Path, name: str, text: str = "exit 0") -> Path:
    """Put a program on the PATH of the fixture ``built``."""
    program = tmp_path / "bin" / name
    program.parent.mkdir(exist_ok=True)
    program.write_text(f"#!/bin/sh\n{text}\n")
    program.chmod(0o755)
    return program


async def test_installed_server_is_used_before_a_built_one(
    tmp_path: Path, built: Path, source: Path
) -> None:
    (built / "etcd").touch()
    installed = install(tmp_path, "etcd")
    assert await go_programs.go_server("etcd", source, "a package") == installed


async def test_built_program_that_is_newer_than_its_source_is_not_built_again(
    built: Path, source: Path
) -> None:
    (built / "load").touch()
    assert await go_programs.go_program("load", source) == built / "load"


async def test_program_that_is_older_than_its_source_is_built(
    tmp_path: Path, built: Path, source: Path
) -> None:
    (built / "load").touch()
    os.utime(built / "load", (0, 0))
    install(tmp_path, "go", f'echo "$@" >{tmp_path}/arguments')
    await go_programs.go_program("load", source)
    assert (tmp_path / "arguments").read_text() == f"build -o {built}/load .\n"
    assert (built / "load").stat().st_mtime > 0


@pytest.mark.usefixtures("built")
async def test_program_without_go_is_missing(source: Path) -> None:
    with pytest.raises(PeerMissing, match="install Go"):
        await go_programs.go_program("load", source)


@pytest.mark.usefixtures("built")
async def test_program_that_go_cannot_build_is_missing_without_a_path_in_the_reason(
    tmp_path: Path, source: Path
) -> None:
    install(tmp_path, "go", "echo no network; exit 1")
    with pytest.raises(PeerMissing) as missing:
        await go_programs.go_program("load", source)
    assert str(missing.value) == "Go could not build its programs"


@pytest.mark.usefixtures("built")
async def test_kafka_without_a_compiler_is_missing(tmp_path: Path) -> None:
    install(tmp_path, "java")
    with pytest.raises(PeerMissing, match="Java development kit"):
        await kafka_jars.kafka_jars()


@pytest.mark.usefixtures("built")
async def test_kafka_that_maven_cannot_fetch_is_missing(tmp_path: Path) -> None:
    for name in ("java", "javac"):
        install(tmp_path, name)
    install(tmp_path, "mvn", "exit 1")
    with pytest.raises(PeerMissing, match="Maven could not fetch it"):
        await kafka_jars.kafka_jars()


@pytest.mark.usefixtures("built")
async def test_kafka_on_the_path_has_its_jars_beside_its_programs(tmp_path: Path) -> None:
    for name in ("java", "javac", "kafka-server-start.sh"):
        install(tmp_path, name)
    (tmp_path / "libs").mkdir()
    (tmp_path / "libs" / "kafka_2.13-4.1.0.jar").touch()
    assert await kafka_jars.kafka_jars() == (tmp_path / "libs", "4.1.0")
