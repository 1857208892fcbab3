"""The console's words about health: what is wrong, how urgent it is, and what is left out."""

from __future__ import annotations

import re
from dataclasses import replace

import pytest

from tests.support.console_world import SILENT, held, metadata, sample, storage, view
from waltz.admin.core.health import _REMEDIES, Severity, format_ranges, no_sample
from waltz.admin.core.problem_times import Period
from waltz.admin.core.sample import ServerSample
from waltz.admin.core.sample_checks import check_sample
from waltz.admin.core.storage_figures import StorageFigures
from waltz.admin.core.verification import Check
from waltz.protocol.damaged_ranges import DamagedRange


def test_healthy_cluster_has_no_statements() -> None:
    health = view(sample()).health
    assert (health.state, health.statements) == ("healthy", ())
    assert health.headline == ("All 2 partitions accept appends, and all 6 replicas take part.")


def test_silent_storage_is_stated_once() -> None:
    health = view(sample(storages={"b:1": SILENT})).health
    assert health.state == "degraded"
    assert [each.text for each in health.statements] == [
        "Storage b:1 does not answer: connection refused."
    ]
    assert health.headline == "All 2 partitions accept appends. 1 problem needs attention."


def test_silent_storage_is_out_of_sessions_since_the_metadata_were_written() -> None:
    sessions = {0: metadata(0, without=("b:1",)), 1: metadata(1, without=("b:1",))}
    silent = sample(storages={"b:1": SILENT}, sessions=sessions)
    (statement, *_) = view(replace(silent, changed_at={0: 70.0, 1: 50.0})).health.statements
    assert (statement.process, statement.period) == ("b:1", Period(since=50.0))
    (taking_part,) = view(
        replace(sample(storages={"b:1": SILENT}), changed_at={0: 70.0})
    ).health.statements
    assert taking_part.period == Period(after=70.0)


def test_server_that_denies_its_report_is_not_called_silent() -> None:
    problem = f"server {sample().endpoint(3)} refused the request: no right to read"
    denied = ServerSample(problem=problem, denied=True)
    (statement,) = view(sample(server=denied)).health.statements
    assert statement.text == f"Server 3 runs, but reports nothing: {problem}."
    assert (statement.command, statement.process) == ("waltz access list", None)


def test_storage_whose_name_contains_another_is_not_left_out() -> None:
    now = sample(storages={"b:1": SILENT, "c:1": storage(held(1))})
    texts = [each.text for each in view(now).health.statements]
    assert any("storage c:1, which does not hold it" in text for text in texts)


def test_lost_quorum_is_critical_and_comes_first() -> None:
    server = ServerSample({0: 5, 1: 5}, health={0: False, 1: False})
    now = sample(server=server, storages={"a:1": SILENT, "b:1": SILENT})
    health = view(now).health
    assert (health.state, health.headline) == (
        "unavailable",
        "2 of 2 partitions accept no appends.",
    )
    first, *others = health.statements
    assert first.severity is Severity.CRITICAL
    assert first.text.startswith("Each of partitions 0-1: 1 of 3 replicas are available")
    assert [each.severity for each in others] == [Severity.WARNING] * 2


def test_silent_server_makes_health_unknown() -> None:
    health = view(sample(server=ServerSample(problem="server host:99: refused"))).health
    assert health.state == "unknown"
    assert [each.text for each in health.statements] == [
        "Server 3 does not answer: server host:99: refused."
    ]


def test_opening_partition_is_not_healthy() -> None:
    health = view(sample(marks={0: None, 1: 5})).health
    assert (health.state, health.headline) == ("degraded", "1 of 2 partitions are being opened.")


def test_damage_names_ids_and_command() -> None:
    ranges = (DamagedRange(1, 5, 7), DamagedRange(1, 9, 9))
    statement = view(sample(storages={"c:1": storage(damaged=ranges)})).health.statements[0]
    assert statement.severity is Severity.CRITICAL
    assert statement.text == "4 records of partition 1 on storage c:1 are damaged: ids 5-7, 9."
    assert (statement.remedy, statement.command) == (
        "Repair them",
        "waltz storage recover c:1 1",
    )


def test_one_damaged_record_is_named_in_the_singular() -> None:
    damaged = storage(damaged=(DamagedRange(1, 5, 5),))
    statement = view(sample(storages={"c:1": damaged})).health.statements[0]
    assert statement.text == "1 record of partition 1 on storage c:1 is damaged: id 5."


def test_refused_partition_is_critical() -> None:
    refused = storage(held(1), figures=StorageFigures(refused={0: "torn file"}))
    texts = [
        each.text
        for each in view(sample(storages={"c:1": refused})).health.statements
        if each.severity is Severity.CRITICAL
    ]
    assert texts == ["The replica of partition 0 on storage c:1 is refused: torn file."]


def test_refused_partition_has_the_advice_of_its_storage_and_no_command_that_fails() -> None:
    """A storage refuses to switch the replica on, so that `waltz storage recover` cannot help."""
    refused = storage(held(1), figures=StorageFigures(refused={0: "torn file"}))
    statements = view(sample(storages={"c:1": refused})).health.statements
    (statement,) = (each for each in statements if "is refused" in each.text)
    assert (statement.command, statement.remedy.split(",")[0]) == (
        None,
        "Do what the storage advises",
    )


def test_full_disk_is_a_warning() -> None:
    full = storage(figures=StorageFigures(150, 1000))
    statements = view(sample(storages={"c:1": full})).health.statements
    assert [each.text for each in statements] == ["The disk of storage c:1 is 85 % full."]


def test_health_with_a_smaller_minimum_of_free_space_is_healthy() -> None:
    now = sample(storages={"c:1": storage(figures=StorageFigures(150, 1000))})
    assert view(now, min_disk_free=15.0).health.statements == ()


def test_unreached_storage_is_stated_for_its_partitions() -> None:
    now = sample()
    findings = check_sample(now, {3: {"a:1": True, "b:1": False, "c:1": True}})
    failed = {(each.partition, each.check, each.problem) for each in findings if each.problems}
    problem = "server 3 does not reach storage b:1"
    assert failed == {(p, Check.STORAGES_REACHED, problem) for p in (0, 1)}
    assert [each for each in check_sample(now, {}) if each.problem] == []


def test_replica_out_of_session_is_stated() -> None:
    now = replace(sample(), metadata={0: metadata(0, without=("c:1",)), 1: metadata(1)})
    (statement,) = view(now).health.statements
    assert statement.text.startswith("Partition 0: the replica on c:1 took part in session 3")


def test_failed_sample_is_unknown() -> None:
    health = no_sample("ZooKeeper did not answer")
    assert (health.state, health.statements[0].text) == ("unknown", "ZooKeeper did not answer")


def test_more_than_five_ranges_end_with_an_ellipsis() -> None:
    assert format_ranges((n, n) for n in range(0, 14, 2)) == "0, 2, 4, 6, 8, …"


def test_difference_that_several_storages_found_is_one_statement() -> None:
    figures = StorageFigures(
        800, 1000, 0.5, 2, differing={1: "transaction 5 of partition 1 differs"}
    )
    now = sample(storages={name: storage(figures=figures) for name in ("a:1", "c:1")})
    (statement,) = view(now).health.statements
    assert statement.severity is Severity.CRITICAL
    assert statement.text == "Transaction 5 of partition 1 differs."
    assert statement.command == "waltz storage compare 1"


def test_replica_that_is_switched_off_in_the_session_is_stated() -> None:
    off = storage(held(0), held(1, on=False))
    (statement,) = view(sample(storages={"a:1": off})).health.statements
    assert statement.severity is Severity.WARNING
    assert statement.text == (
        "The replica of partition 1 on storage a:1 is switched off: servers may neither read nor "
        "write it."
    )
    assert statement.command == "waltz storage switch a:1 1 --read on --write on"


def test_replica_that_is_out_of_the_session_because_it_is_switched_off_is_stated_once() -> None:
    off = storage(held(0), held(1, on=False))
    now = sample(storages={"c:1": off}, sessions={1: metadata(1, without=("c:1",))})
    (statement,) = view(replace(now, changed_at={1: 50.0})).health.statements
    assert statement.text.startswith("The replica of partition 1 on storage c:1 is switched off")
    assert statement.command == "waltz storage switch c:1 1 --read on --write on"
    assert statement.period == Period(since=50.0)


def test_refused_replica_that_is_out_of_the_session_is_stated_once() -> None:
    refused = storage(held(0), held(1), figures=StorageFigures(refused={1: "its files are lost"}))
    now = sample(storages={"c:1": refused}, sessions={1: metadata(1, without=("c:1",))})
    (statement,) = view(now).health.statements
    assert "is refused: its files are lost" in statement.text


def test_damage_of_a_replica_that_is_switched_off_is_stated() -> None:
    off = storage(held(0), held(1, on=False), damaged=(DamagedRange(1, 5, 5),))
    statement = view(sample(storages={"a:1": off})).health.statements[0]
    assert statement.text == "1 record of partition 1 on storage a:1 is damaged: id 5."


@pytest.mark.parametrize("check", _REMEDIES)
def test_remedy_of_several_clauses_ends_with_what_the_command_is_for(check: Check) -> None:
    """The command follows after a colon. Where one clause is the remedy, the command is for it."""
    remedy, _ = _REMEDIES[check]
    _, *others = re.split("[.;] ", remedy)
    assert not others or others[-1].startswith("To ")
