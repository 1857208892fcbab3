"""Run every example of every verb's ``--help`` on a suitable cluster.

A new example goes into one of the scenarios below, or into `NOT_TYPED` with a reason. A scenario
is a list of commands in order. ``+`` marks a command that prepares the next ones and is no example;
``+ WAIT`` waits until ``waltz cluster verify`` passes. `LOCAL` has clusters of its own. The others
are typed one after the other on one cluster: `MADE` creates it, `SHOWN` only reads its state,
`USED` uses its log, `FILES` reads the files of a stopped storage, `CHANGED` changes its storages
and deletes it.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import typer

from tests.docs.hosts import DATA, PORTS, STORAGES, hosts
from tests.docs.reader import Reader
from waltz.cli.app import app
from waltz.cli.options import example_lines
from waltz.local.ports import choose_ports

LOCAL = """
waltz local up --detach
waltz local status
waltz local status -o json
waltz local logs server/0
waltz local logs --lines 20
waltz log append 0 hello
waltz local kill storage/1
waltz local start storage/1
waltz local down
waltz local up --dir /tmp/w --partitions 8 --storages 3 --servers 2 --detach
waltz local down --dir /tmp/w
"""

MADE = """
waltz config explain server
waltz config explain storage /etc/waltz/storage.yml
waltz config explain client client.yml -o json | jq '.settings[] | {name, value}'
waltz cluster create orders --partitions 8 -z zk-1:2181 -r /waltz/orders
+ export XDG_CONFIG_HOME=/backup
waltz profile add staging --zookeeper zk-1:2181 --root /waltz/orders
waltz profile add from-home -z zk.example:2181 --access outside
waltz profile list
waltz profile list -o json
waltz profile use staging
waltz profile use --none
waltz profile remove from-home
+ export WALTZ_ZOOKEEPER=zk-1:2181 WALTZ_ROOT=/waltz/orders WALTZ_TLS=off
+ waltz storage add storage-0:55280 --admin-port 55281 --group 0
+ waltz storage add storage-1:55280 --admin-port 55281 --group 1
+ waltz storage add storage-2:55280 --admin-port 55281 --group 2
+ waltz-storage /etc/waltz/storage.yml &  # on storage-0
+ waltz-storage /etc/waltz/storage.yml &  # on storage-1
+ waltz-storage /etc/waltz/storage.yml &  # on storage-2
+ waltz-storage /etc/waltz/storage.yml &  # on storage-3
waltz storage auto-assign 0 --dry-run
+ waltz storage auto-assign 0
+ waltz storage auto-assign 1
+ waltz storage auto-assign 2
+ waltz-server server.yml &  # on server-0
waltz storage add storage-3:55280 --admin-port 55281 --group 2
+ WAIT
"""

SHOWN = """
waltz cluster key
waltz cluster key -o json
waltz cluster show
waltz cluster show -z zk-1:2181 -r /waltz/orders
waltz cluster show -o json | jq '.partitions[0].server'
waltz cluster show -o template='{partitions.partition} {partitions.server}'
waltz cluster verify
waltz cluster verify --wait 60
waltz cluster verify --partition 3 --timeout 5
waltz cluster verify -o json | jq '.findings[] | select(.passed | not)'
waltz cluster check-connectivity
waltz cluster check-connectivity -t 3
waltz cluster outside list
waltz cluster outside list -o json
waltz cluster outside set server-0:55180=waltz.example:31000 --dry-run
waltz cluster outside set server-0:55180=waltz.example:31000 storage-0:55280=waltz.example:31010
waltz cluster outside remove storage-0:55280
waltz cluster outside remove --all --yes
waltz cluster metadata backup orders-metadata.json
waltz cluster metadata backup orders-metadata.json -z zk-1:2181 -r /waltz/orders
waltz cluster rescue --dry-run
waltz cluster metadata restore orders-metadata.json --dry-run
waltz cluster metadata restore orders-metadata.json
waltz cluster rescue --yes
waltz server list
waltz server list -o json
waltz server prefer server-0:55180 0-6,7
waltz server unprefer server-0:55180 0-6,7
waltz storage list
waltz storage validate
waltz storage validate -o json
waltz top --once -o json | jq '.partitions[].replicas[].lag'
waltz doctor
waltz debug bundle
waltz debug bundle fault.tar.gz
waltz doctor --timeout 5
waltz doctor -o json | jq -r '.problems[].command'
"""

USED = """
waltz log append 0 hello
waltz log append 0 'withdraw 5' --lock account:17 --mark 0
seq 1000 | waltz log append 0 --in-flight 100
waltz log append 0 --from picture.png
waltz log append 0 --from records.bin --framing length
waltz log tail 0
waltz log read 0 17
waltz log read 0 17-42 -o json
waltz log read 0 0-
waltz log read 0 17 --raw > picture.png
waltz log high-water-mark
waltz log high-water-mark 0 -o json
waltz log find 17:3:0:42
waltz log find 17:3:0:42 --after 1000 -o json
waltz bench validate --partitions 0 --yes
waltz bench validate --clients 5 --transactions 200 --interval 10 --partitions 0-3 --yes
waltz bench produce -n 1000 --interval 5 --partitions 0-3 --yes
waltz bench consume -n 1000 --partitions 0-3 --from-start
waltz bench producers --partitions 0 --yes
waltz bench producers --clients 8 --in-flight 5 -n 5000 --size 512 --partitions 0-3 --yes
waltz bench producers --partitions 0 --locks 100 --yes -o json
waltz bench consumers --partitions 0 --yes
waltz bench consumers -n 100000 --size 512 --partitions 0-3 --yes
waltz bench consumers --partitions 0-3 -n 100000 --existing
waltz log export /backup/orders
waltz log export /backup/parquet 0-3 --format parquet
+ waltz log read 1 0- -o json > events.jsonl
waltz log import events.jsonl --to 0 --dry-run
waltz log import /backup/orders --partitions 3 --to 0
+ rm /backup/orders.import-*
waltz log import /backup/orders
"""

FILES = """
+ pkill -TERM waltz-storage  # on storage-0
waltz disk verify /var/lib/waltz
waltz disk verify /var/lib/waltz/3 -o json
waltz disk verify /var/lib/waltz/3/0000000000000000000.seg -t 17
waltz disk stat /var/lib/waltz
waltz disk stat /var/lib/waltz/3/0000000000000000000.seg -o json
waltz disk dump /var/lib/waltz/3/0000000000000000000.seg --metadata
waltz disk dump /var/lib/waltz/3/0000000000000000000.seg -t 17-19
waltz disk dump /var/lib/waltz/3/0000000000000000000.seg --data text -o json
waltz disk dump /var/lib/waltz/3/0000000000000000000.seg -d waltz:JsonSerializer
waltz disk control /var/lib/waltz
waltz disk control /var/lib/waltz/waltz-storage.ctl --partition 0-6 --assigned
waltz disk flatten /var/lib/waltz
+ cp -r /var/lib/waltz /copy
waltz disk export /copy > log.jsonl
waltz disk export /copy --partition 0-3 | gzip > log.jsonl.gz
waltz disk export /copy/3/0000000000000000000.seg > segment.jsonl
+ waltz-storage /etc/waltz/storage.yml &  # on storage-0
+ WAIT
"""

CHANGED = """
waltz access list
waltz access list -o json
waltz access grant reports.example read 4 --dry-run
waltz access grant orders.example read,append 0-3
waltz access grant reports.example read
waltz access revoke orders.example append 3
waltz access revoke reports.example read,append,administer --dry-run
waltz access disable --dry-run
waltz access disable --yes
waltz storage assign storage-3:55280 0-6,7
+ WAIT
waltz storage list storage-3:55280 -o json
waltz storage sync --dry-run
waltz storage sync storage-3:55280
waltz storage max-transaction-id storage-3:55280 4
waltz storage switch storage-3:55280 0-6 --write off
waltz storage switch storage-3:55280 0-6 --read on --write on
waltz storage availability storage-3:55280 0-6 off
waltz storage availability storage-3:55280 0-6 on
+ WAIT
waltz storage recover storage-3:55280
waltz storage recover storage-3:55280 4 --source storage-1:55280
waltz storage availability storage-3:55280 4 off
waltz storage recover-partition storage-1:55280 storage-3:55280 4
waltz storage availability storage-3:55280 4 on
+ WAIT
waltz storage unassign storage-3:55280 4
waltz storage assign storage-3:55280 4 --only storage
+ waltz storage assign storage-3:55280 4
+ WAIT
waltz storage unassign storage-3:55280 4 --only zookeeper
+ waltz storage assign storage-3:55280 4
+ WAIT
waltz storage unassign storage-3:55280 0-6 --delete-files --yes
+ waltz storage unassign storage-3:55280 7
+ WAIT
waltz storage move storage-2:55280 storage-3:55280 4 --dry-run
waltz storage move storage-2:55280 storage-3:55280 4
+ WAIT
waltz storage compare
waltz storage compare 0-3 -o json
waltz storage retire-group 2 --dry-run
waltz storage retire-group 2 --delete-files
waltz storage remove storage-3:55280
+ pkill -TERM waltz-server  # on server-0
waltz cluster delete orders -z zk-1:2181 -r /waltz/orders
"""

SCENARIOS = (LOCAL, MADE, SHOWN, USED, FILES, CHANGED)

NOT_TYPED = {
    "waltz local up": "goes on until Ctrl-C",
    "waltz console": "goes on until Ctrl-C",
    "waltz console --port 0 --interval 5": "goes on until Ctrl-C",
    "waltz console --host 0.0.0.0 --allow-host console.example": "goes on until Ctrl-C",
    "waltz console --certificate console.crt --key console.key": "needs PEM files",
    "waltz profile add production -z zk-1:2181,zk-2:2181 -r /waltz/orders --tls tls.yml": "needs "
    "PEM files",
    "waltz debug bundle --log server.log --settings server.yml": "the logs are elsewhere",
    "waltz local logs --follow": "goes on until Ctrl-C",
    "waltz top": "goes on until Ctrl-C",
    "waltz top --interval 5": "goes on until Ctrl-C",
    "waltz log tail 0-3 -n 0 --follow -o json | jq .data": "goes on until Ctrl-C",
    "waltz bench consume -n 1000 --partitions 0-3": "waits for transactions of a later command",
    "waltz disk flatten /var/lib/waltz --meta /meta/waltz --wal /fast/waltz": "the storages of the "
    "scenarios have one directory each",
    "waltz disk wal /var/lib/waltz": "the storages of the scenarios use the engine files",
    "waltz disk wal /var/lib/waltz -o json": "the storages of the scenarios use the engine files",
}

FILES_OF_SETTINGS = {
    "etc/storage.yml": "storage.port: 55280\nstorage.admin.port: 55281\n"
    "storage.directory: /var/lib/waltz\n",
    "server.yml": "server.port: 55180\n",
    "client.yml": "",
}
INPUTS = {"picture.png": b"\x89PNG", "records.bin": b"\0\0\0\x03one\0\0\0\x03two"}
OF_ALL = (
    "zookeeper.connectString: zk-1:2181\nzookeeper.sessionTimeout: 10000\n"
    "cluster.root: /waltz/orders\n"
)
FEWER = {
    "-n 5000": "-n 50",
    "-n 100000": "-n 1000",
    "-n 1000 --": "-n 100 --",
    "--transactions 200": "--transactions 20",
}
"""What takes less time is as good an example."""
ANY_DISK = {"waltz doctor": "waltz doctor --min-disk-free 0"}
"""The disk of this machine may be almost full."""


def lines(scenario: str) -> list[str]:
    return scenario.strip().splitlines()


def examples(command: Any) -> Iterator[str]:
    for child in getattr(command, "commands", {}).values():
        yield from examples(child)
    yield from example_lines(command.epilog)


def read(reader: Reader, *scenarios: str) -> None:
    for line in (line for scenario in scenarios for line in lines(scenario)):
        if line == "+ WAIT":
            reader.until("waltz cluster verify")
        else:
            reader.type(re.sub(r" \| jq .*", "", line.removeprefix("+ ")))


def test_every_example_is_typed_or_has_a_reason() -> None:
    typed = {line for scenario in SCENARIOS for line in lines(scenario)}
    shown = set(examples(typer.main.get_command(app)))
    assert len(shown) > 90
    missing = shown - typed - NOT_TYPED.keys()
    assert not missing, (
        "add each example to a scenario above (SHOWN, if it only reads a cluster's state), "
        f"or to NOT_TYPED with the reason: {sorted(missing)}"
    )
    unneeded = NOT_TYPED.keys() - (shown - typed)
    assert not unneeded, f"typed, or no longer in a --help: remove from NOT_TYPED {unneeded}"
    extra = {line for line in typed if not line.startswith("+ ")} - shown
    assert not extra, f"no longer in a --help: remove, or mark with '+ ': {sorted(extra)}"


@pytest.mark.slow
def test_examples_with_local_cluster_work(tmp_path: Path) -> None:
    reader = Reader(tmp_path, {"/tmp/w": str(tmp_path / "w")}, {})
    try:
        read(reader, LOCAL)
    finally:
        for name in ("waltz-local", "w"):
            if (tmp_path / name / "cluster.json").exists():
                reader.type(f"waltz local down --dir {name}")


@pytest.mark.timeout(900)
@pytest.mark.slow
def test_help_examples_on_one_cluster_work(tmp_path: Path, zookeeper: str) -> None:
    machines = hosts(tmp_path, zookeeper, choose_ports(PORTS))
    for number in range(STORAGES):
        (tmp_path / f"storage-{number}").mkdir()
    (tmp_path / "etc").mkdir()
    for name, settings in FILES_OF_SETTINGS.items():
        (tmp_path / name).write_text((OF_ALL + settings).replace("zk-1:2181", zookeeper))
    for name, content in INPUTS.items():
        (tmp_path / name).write_bytes(content)
    names = {**machines.names, **FEWER, **ANY_DISK, "/backup": str(tmp_path / "backup")}
    names[DATA] = str(machines.hosts["storage-0"].data)
    reader = Reader(tmp_path, names, machines.hosts)
    try:
        read(reader, MADE, SHOWN, USED, FILES, CHANGED)
    finally:
        reader.leave()
