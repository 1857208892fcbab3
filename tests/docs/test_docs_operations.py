"""The operations manual: its tasks, typed one after the other on the cluster that it makes."""

from __future__ import annotations

from pathlib import Path

from tests.docs.hosts import PORTS, STORAGES, hosts
from tests.docs.reader import Reader
from waltz.local.ports import choose_ports

DOCS = Path(__file__).parents[2] / "docs"


def test_the_tasks_of_the_manual_work(tmp_path: Path, zookeeper: str) -> None:
    machines = hosts(tmp_path, zookeeper, choose_ports(PORTS))
    for number in range(STORAGES):
        (tmp_path / f"storage-{number}").mkdir()
    reader = Reader(tmp_path, machines.names, machines.hosts)
    try:
        assert reader.follow(DOCS / "operations.md") > 20
    finally:
        reader.leave()
