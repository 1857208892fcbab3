"""Test the start script of a ZooKeeper member with a fake Java that prints its arguments."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest

_START = Path(__file__).parents[3] / "operator" / "zookeeper" / "start"


class Member:
    """The files of one member."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.data, self.config, self.switch = folder / "data", folder / "zoo.cfg", folder / "found"
        self.data.mkdir()
        java = folder / "java"
        java.write_text('#!/bin/sh\necho "$@"\n')
        java.chmod(0o755)

    def add_data(self) -> None:
        (self.data / "version-2").mkdir()
        (self.data / "version-2" / "snapshot.0").touch()

    def start(
        self, *, found: str, members: int, ordinal: int = 0
    ) -> subprocess.CompletedProcess[str]:
        self.switch.write_text(found)
        environment = {
            "PATH": f"{self.folder}:{os.environ['PATH']}",
            "MEMBERS": str(members),
            "DOMAIN": "members.logs.svc",
            "POD": f"log-zookeeper-{ordinal}",
            "DATA": str(self.data),
            "CONFIG": str(self.config),
            "SWITCH": str(self.switch),
        }
        return subprocess.run(
            ["bash", _START], env=environment, capture_output=True, text=True, check=False
        )

    @property
    def may_initialize(self) -> bool:
        return (self.data / "initialize").exists()


@pytest.fixture
def member(tmp_path: Path) -> Member:
    return Member(tmp_path)


@pytest.mark.parametrize("members", [1, 3])
def test_empty_member_may_form_a_new_ensemble_while_the_switch_allows_it(
    member: Member, members: int
) -> None:
    ran = member.start(found="yes", members=members)
    assert ran.returncode == 0, ran.stderr
    assert member.may_initialize
    assert "-Dzookeeper.db.autocreate=false" in ran.stdout


def test_empty_member_may_not_form_a_new_ensemble_when_the_switch_says_no(member: Member) -> None:
    (member.data / "initialize").touch()
    assert member.start(found="no", members=3).returncode == 0
    assert not member.may_initialize


def test_empty_single_member_does_not_start_when_the_switch_says_no(member: Member) -> None:
    ran = member.start(found="no", members=1)
    assert ran.returncode == 1
    assert "restore the volume" in ran.stderr


@pytest.mark.parametrize("found", ["yes", "no"])
def test_member_with_data_starts_and_may_not_form_a_new_ensemble(
    member: Member, found: str
) -> None:
    member.add_data()
    assert member.start(found=found, members=3).returncode == 0
    assert not member.may_initialize


def test_configuration_lists_members_by_the_names_of_their_pods(member: Member) -> None:
    member.start(found="yes", members=3, ordinal=2)
    lines = member.config.read_text().splitlines()
    assert "server.3=log-zookeeper-2.members.logs.svc:2888:3888" in lines
    assert (member.data / "myid").read_text() == "3\n"
    member.start(found="yes", members=1)
    assert "server." not in member.config.read_text()
