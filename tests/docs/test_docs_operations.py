"""Run the pages for administrators on the cluster that they create."""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.docs.hosts import PORTS, STORAGES, hosts
from tests.docs.reader import Reader
from waltz.local.ports import choose_ports

DOCS = Path(__file__).parents[2] / "docs"

pytestmark = pytest.mark.timeout(900)


@pytest.fixture
def reader(tmp_path: Path, zookeeper: str) -> Iterator[Reader]:
    """A reader with all machines of the manual, which end with the test."""
    machines = hosts(tmp_path, zookeeper, choose_ports(PORTS))
    for number in range(STORAGES):
        (tmp_path / f"storage-{number}").mkdir()
    reader = Reader(tmp_path, machines.names, machines.hosts)
    yield reader
    if (tmp_path / "trial" / "cluster.json").exists():
        reader.type("waltz local down --dir trial")
    reader.leave()


@pytest.mark.slow
def test_commands_on_the_operations_page_succeed(reader: Reader) -> None:
    assert reader.follow(DOCS / "operations.md") > 40


@pytest.mark.slow
def test_remedies_of_faults_page_work(reader: Reader) -> None:
    reader.follow(DOCS / "operations.md", "Operations", "Make a cluster", "Add replicas")
    assert reader.follow(DOCS / "faults.md") > 3


@pytest.mark.skipif(shutil.which("keytool") is None, reason="keytool is not installed")
@pytest.mark.slow
def test_migration_page_works(reader: Reader, tmp_path: Path) -> None:
    """The processes that go and the ones that come are the same program; the key stores are not."""
    reader.follow(DOCS / "operations.md", "Operations", "Make a cluster")
    _make_key_stores(tmp_path / "etc")
    assert reader.follow(DOCS / "migration.md") > 10


def _make_key_stores(directory: Path) -> None:
    directory.mkdir()
    shared = ["-alias", "waltz", "-storetype", "JKS", "-storepass", "secret"]
    key = ["-genkeypair", "-keyalg", "RSA", "-dname", "CN=waltz", "-keypass", "secret"]
    for options in (
        [*key, "-keystore", "server.jks"],
        ["-exportcert", "-keystore", "server.jks", "-file", "certificate"],
        ["-importcert", "-noprompt", "-keystore", "trust.jks", "-file", "certificate"],
    ):
        made = subprocess.run(
            ["keytool", *options, *shared], cwd=directory, capture_output=True, check=False
        )
        assert made.returncode == 0, made.stdout
