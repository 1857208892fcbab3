"""The values of ``waltz top``: rates, lag and recoveries, from two samples of a cluster."""

from __future__ import annotations

import contextlib
import io
import os
import pty
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest
from rich.console import Console

from waltz.admin import HeldPartition
from waltz.admin.core.sample import (
    Sample,
    ServerSample,
    StorageSample,
    rate,
    sessions_since,
)
from waltz.admin.monitoring import Monitor
from waltz.cli.local_names import NO_NAMES, LocalNames
from waltz.cli.output import Format, tables
from waltz.cli.rows import Rendering
from waltz.cli.running import Failed
from waltz.cli.top.commands import printer, sample_within, watch, with_problem
from waltz.cli.top.rows import render_sample
from waltz.metadata.cluster import Cluster
from waltz.metadata.core.formats import (
    UNRESOLVED,
    OwnedPartition,
    PartitionAssignment,
    PartitionMetadata,
    ReplicaState,
    ServerDescriptor,
)
from waltz.metadata.core.membership_steps import Member, Membership
from waltz.metadata.core.storage_maps import assign_everything
from waltz.net import PLAINTEXT
from waltz.protocol.damaged_ranges import DamagedRange
from waltz.testing import InProcessCluster
from waltz.testing.nodes import ROOT

MAPS = assign_everything({"a:1": 0, "b:1": 1}, {"a:1": 11, "b:1": 12}, 2)
ASSIGNMENT = PartitionAssignment(1, 2, {3: (OwnedPartition(0, 7),)})
VIEW = Membership(ASSIGNMENT, 1, 1, (Member("s_0", 1, ServerDescriptor(3, "host", 99)),))


def held(partition: int, max_id: int | None, *, on: bool = True) -> HeldPartition:
    return HeldPartition(
        partition,
        session_id=4,
        low_water_mark=0,
        local_low_water_mark=0,
        max_transaction_id=max_id,
        size_bytes=1_500_000,
        readable=on,
        writable=on,
    )


def sample(at: float, mark: int | None, session: int = 4) -> Sample:
    replicas = {"a:1": ReplicaState(session, UNRESOLVED), "b:1": ReplicaState(session - 1, 17)}
    return Sample(
        at,
        2,
        VIEW,
        MAPS,
        {0: PartitionMetadata(7, session, replicas)},
        {3: ServerSample({0: mark})},
        {"a:1": StorageSample({0: held(0, 100)}), "b:1": StorageSample({0: held(0, 60)})},
    )


def test_rate_is_unknown_without_two_marks() -> None:
    first, later = sample(10.0, 100), sample(12.0, 150)
    assert rate(first, later, 0) == 25.0
    assert rate(None, later, 0) is None
    assert rate(later, later, 0) is None
    assert rate(sample(10.0, None), later, 0) is None
    assert rate(first, later, 1) is None


def test_every_new_session_counts_as_recovery() -> None:
    assert sessions_since(sample(1.0, 0, session=4), sample(2.0, 0, session=6), 0) == 2
    assert sessions_since(replace(sample(1.0, 0), metadata={}), sample(2.0, 0, session=0), 0) == 1
    assert sessions_since(sample(1.0, 0), sample(2.0, 0), 1) == 0


def test_top_shows_rates_lag_and_recoveries() -> None:
    first, now = sample(10.0, 80, session=3), sample(12.0, 110)
    shown = render_sample(first, first, now)
    assert shown.value["recoveries"] == 1
    assert shown.value["transactions_per_second"] is None, "partition 1 has no server"
    served, lost = shown.value["partitions"]
    assert (served["server"], served["generation"], served["session"]) == (3, 7, 4)
    assert served["replicas"] == [
        {"storage": "a:1", "in_session": True, "available": True, "lag": 10, "damaged_records": 0},
        {"storage": "b:1", "in_session": False, "available": True, "lag": 50, "damaged_records": 0},
    ]
    assert (lost["server"], lost["high_water_mark"]) == (None, None)
    assert shown.value["servers"][0]["transactions_per_second"] == 15.0
    assert shown.value["storages"][1]["lag"] == 50
    _, trouble, _, _, storages = shown.tables
    assert trouble.cells == [
        ("a:1", "off or missing: 1"),
        ("b:1", "not in session: 0; off or missing: 1"),
    ]
    assert storages.cells[0][-1] == "1.5"


def test_top_shows_replica_with_damaged_records() -> None:
    found = {"a:1": StorageSample({0: held(0, 100)}, damaged=(DamagedRange(0, 7, 9),))}
    now = replace(sample(1.0, 100), storages=found)
    shown = render_sample(now, None, now)
    assert shown.value["partitions"][0]["replicas"][0]["damaged_records"] == 3
    trouble = {each["process"]: each["trouble"] for each in shown.value["trouble"]}
    assert trouble["a:1"] == "damaged records: 0; off or missing: 1"


def test_top_shows_processes_that_do_not_answer() -> None:
    silent = {"a:1": StorageSample({0: held(0, None, on=False)}), "b:1": StorageSample(problem="x")}
    now = replace(sample(1.0, 5), storages=silent, servers={3: ServerSample(problem="y")})
    shown = render_sample(now, None, now)
    replicas = shown.value["partitions"][0]["replicas"]
    assert [(r["available"], r["lag"]) for r in replicas] == [(False, None), (None, None)]
    assert replicas[1]["damaged_records"] is None
    assert shown.tables[0].cells[0][-1] == 2
    assert shown.value["trouble"] == [
        {"process": "server 3", "trouble": "y"},
        {"process": "a:1", "trouble": "off or missing: 0-1"},
        {"process": "b:1", "trouble": "x"},
    ]
    assert shown.value["transactions_per_second"] is None


def test_top_shows_what_silent_processes_know_as_unknown() -> None:
    silent = {"a:1": StorageSample(problem="x"), "b:1": StorageSample(problem="x")}
    now = replace(sample(1.0, 5), storages=silent, servers={3: ServerSample(problem="y")})
    shown = render_sample(now, now, now)
    (server,), (storage, _) = shown.value["servers"], shown.value["storages"]
    assert (server["partitions"], server["transactions_per_second"]) == (None, None)
    assert [storage[key] for key in ("partitions", "lag", "size_bytes")] == [None] * 3
    _, _, partitions, servers, storages = shown.tables
    assert list(partitions.cells[0])[3:7] == ["unknown", "unknown", "1 of 2", "unknown"]
    assert list(servers.cells[0])[2:] == ["unknown", "unknown"]
    assert list(storages.cells[0])[2:] == ["unknown", 1, "unknown", "unknown"]


def test_tables_of_top_fit_80_columns() -> None:
    first, now = sample(10.0, 1_234_000_000), sample(11.0, 1_234_567_890)
    silent = {"a:1": StorageSample(problem="cannot reach a:1: Connection refused")}
    now = replace(now, storages={**now.storages, **silent})
    console = Console(width=80, highlight=False, record=True, file=io.StringIO())
    console.print(tables(render_sample(first, first, now)))
    shown = console.export_text()
    assert max(map(len, shown.splitlines())) <= 80
    assert "…" not in shown
    for text in ("high-water", "1234567890", "567890.0", "Connection refused"):
        assert text in shown


class Ended(Exception):
    """The test has seen enough."""


async def watched(
    *taken: Sample | Exception, once: bool = False
) -> list[tuple[Rendering, str | None]]:
    """Return what ``waltz top`` displays while the samples, or their errors, are ``taken``."""
    left, displayed = [*taken, Ended()], list[tuple[Rendering, str | None]]()

    async def take() -> Sample:
        next_one = left.pop(0)
        if isinstance(next_one, Exception):
            raise next_one
        return next_one

    with contextlib.suppress(Ended):
        await watch(take, lambda *shown: displayed.append(shown), 0, NO_NAMES, once=once)
    return displayed


async def test_failed_sample_keeps_the_last_one_with_the_reason_until_the_next() -> None:
    first, later = sample(1.0, 100), sample(5.0, 140)
    shown = await watched(first, Failed("no ZooKeeper"), later)
    assert [problem for _, problem in shown] == [None, "no ZooKeeper", None]
    assert shown[1][0] is shown[0][0]
    assert shown[2][0].value["partitions"][0]["transactions_per_second"] == 10.0
    head, *rest = with_problem(*shown[1]).tables
    assert list(head.cells) == [("no ZooKeeper",)]
    assert tuple(rest) == shown[0][0].tables


@pytest.mark.parametrize(("taken", "once"), [((), False), ((sample(1.0, 1),), True)])
async def test_failed_first_or_only_sample_ends_the_command(
    taken: tuple[Sample, ...], once: bool
) -> None:
    with pytest.raises(Failed, match="no ZooKeeper"):
        await watched(*taken, Failed("no ZooKeeper"), once=once)


async def test_zookeeper_that_stops_answering_fails_a_sample_within_the_limit() -> None:
    async with InProcessCluster() as cluster:
        store = cluster.zookeeper.connect()
        network = cluster.network.host("admin")
        async with Monitor(
            Cluster(store, ROOT), PLAINTEXT, timeout_seconds=5, network=network
        ) as monitor:
            assert (await sample_within(monitor, 5)).num_partitions == 1
            cluster.zookeeper.stop_answering()
            with pytest.raises(Failed, match=r"ZooKeeper did not answer within 0\.1 s"):
                await sample_within(monitor, 0.1)
            cluster.zookeeper.resume_answering()
            assert (await sample_within(monitor, 5)).num_partitions == 1
        await store.close()


def test_problem_is_printed_once_to_standard_error(capsys: pytest.CaptureFixture[str]) -> None:
    shown, display = render_sample(sample(1.0, 1), None, sample(1.0, 1)), printer(Format.JSON)
    for problem in (None, "x", "x", None, "x"):
        display(shown, problem)
    printed = capsys.readouterr()
    assert printed.err == "waltz: no new sample: x; retrying\n" * 2
    assert len(printed.out.splitlines()) == 2


def test_top_of_local_cluster_has_the_names_of_its_processes() -> None:
    now = replace(sample(1.0, 5), servers={3: ServerSample(problem="host:99 is gone")})
    names = LocalNames(Path("/w"), {"host:99": "server/0", "a:1": "storage/0"})
    shown = render_sample(now, None, now, names)
    assert shown.value["servers"][0]["local_name"] == "server/0"
    _, trouble, _, servers, storages = shown.tables
    assert trouble.cells[0] == ("server 3 (server/0)", "host:99 (server/0) is gone")
    assert list(servers.cells[0])[:2] == [3, "host:99 (server/0)"]
    assert next(iter(storages.cells[0])) == "a:1 (storage/0)"
    assert render_sample(now, None, now).value["servers"][0]["local_name"] is None


def test_error_of_top_on_a_terminal_is_printed_after_its_screen_has_ended() -> None:
    """What is printed on the screen of the display disappears with it."""
    program = (
        "import sys\n"
        "from contextlib import asynccontextmanager\n"
        "from waltz.cli.app import app\n"
        "from waltz.cli.running import Failed\n"
        "from waltz.cli.top import commands\n"
        "@asynccontextmanager\n"
        "async def nothing(*_, **__):\n"
        "    yield None\n"
        "async def fail(*_, **__):\n"
        "    raise Failed('the reason')\n"
        "commands.open_cluster = commands.Monitor = nothing\n"
        "commands.tls_of = lambda *_: nothing().__aenter__()\n"
        "commands.network_of = lambda *_: None\n"
        "commands.watch = fail\n"
        "app(['top', '-z', 'z:1'])\n"
    )
    terminal, other_end = pty.openpty()
    with subprocess.Popen(
        [sys.executable, "-c", program], stdout=other_end, stderr=other_end
    ) as process:
        os.close(other_end)
        printed = b""
        # The end of a terminal whose other end is closed is an error.
        with os.fdopen(terminal, "rb", buffering=0) as file, contextlib.suppress(OSError):
            while read := file.read(1000):
                printed += read
        assert process.wait(60) == 1
    assert b"\x1b[?1049h" in printed
    assert printed.index(b"waltz: the reason") > printed.rindex(b"\x1b[?1049l")
