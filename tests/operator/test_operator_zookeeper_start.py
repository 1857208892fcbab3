"""The script that starts a member of a managed ZooKeeper, with a Java that only says its args."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest

_START = Path(__file__).parents[2] / "operator" / "zookeeper" / "start"


class Member:
    """One member's files below a folder."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.data, self.config, self.switch = folder / "data", folder / "zoo.cfg", folder / "found"
        self.data.mkdir()
        java = folder / "java"
        java.write_text('#!/bin/sh\necho "$@"\n')
        java.chmod(0o755)

    def has_history(self) -> None:
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
    def may_found(self) -> bool:
        return (self.data / "initialize").exists()


@pytest.fixture
def member(tmp_path: Path) -> Member:
    return Member(tmp_path)


@pytest.mark.parametrize("members", [1, 3])
def test_an_empty_member_founds_while_it_may(member: Member, members: int) -> None:
    ran = member.start(found="yes", members=members)
    assert ran.returncode == 0, ran.stderr
    assert member.may_found
    assert "-Dzookeeper.db.autocreate=false" in ran.stdout


def test_an_empty_member_of_an_ensemble_has_no_vote_afterwards(member: Member) -> None:
    (member.data / "initialize").touch()
    assert member.start(found="no", members=3).returncode == 0
    assert not member.may_found


def test_an_only_member_that_forgot_everything_does_not_start(member: Member) -> None:
    ran = member.start(found="no", members=1)
    assert ran.returncode == 1
    assert "restore the volume" in ran.stderr


@pytest.mark.parametrize("found", ["yes", "no"])
def test_a_member_with_a_history_goes_on(member: Member, found: str) -> None:
    member.has_history()
    assert member.start(found=found, members=3).returncode == 0
    assert not member.may_found


def test_members_find_each_other_by_the_names_of_their_pods(member: Member) -> None:
    member.start(found="yes", members=3, ordinal=2)
    lines = member.config.read_text().splitlines()
    assert "server.3=log-zookeeper-2.members.logs.svc:2888:3888" in lines
    assert (member.data / "myid").read_text() == "3\n"
    member.start(found="yes", members=1)
    assert "server." not in member.config.read_text()
