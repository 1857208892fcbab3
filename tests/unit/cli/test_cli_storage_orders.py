"""What ``waltz storage`` prints, advises and returns after an order has failed."""

from __future__ import annotations

import pytest
from typer.testing import CliRunner

from waltz.admin import GroupAssignment, Step, Synchronization, Wait
from waltz.admin.core.steps import ChangeAssignment, CreateReplicas, DropReplicas
from waltz.cli.app import app
from waltz.cli.storage import partitions
from waltz.cli.storage.partitions import remedy, replica_changes
from waltz.cli.storage.rows import SyncedStorage
from waltz.metadata.core.storage_maps import ReplicaChange

SILENT = Wait("storage storage-1:55280 does not answer")
ASSIGNED = ChangeAssignment((ReplicaChange(0, frozenset(), frozenset({"storage-1:55280"})),))
CREATED = CreateReplicas("storage-1:55280", (0,))


def test_failed_auto_assign_is_repeated_if_nothing_was_assigned() -> None:
    assert "Run the same command again" in remedy(GroupAssignment(0), [SILENT])


def test_failed_auto_assign_is_completed_by_sync_once_the_group_is_assigned() -> None:
    assert "waltz storage sync" in remedy(GroupAssignment(0), [ASSIGNED, SILENT])


def test_failed_sync_is_repeated() -> None:
    assert "waltz storage sync" in remedy(Synchronization("storage-1:55280"), [CREATED, SILENT])


def test_result_has_the_partitions_of_all_steps_at_one_storage() -> None:
    storage = "storage-1:55280"
    created = [CreateReplicas(storage, (0, 1)), CreateReplicas(storage, (4,))]
    dropped: list[Step | Wait] = [
        DropReplicas(storage, (2,), delete_files=False),
        SILENT,
        DropReplicas(storage, (3, 5), delete_files=False),
    ]
    expected = {storage: SyncedStorage(storage, (0, 1, 4), (2, 3, 5))}
    assert replica_changes([*created, *dropped]) == expected


@pytest.mark.parametrize("failures", [[], ["storage-2:55280 does not answer"]])
def test_sync_has_exit_status_1_if_one_of_the_storages_failed(
    monkeypatch: pytest.MonkeyPatch, failures: list[str]
) -> None:
    async def sync_all(*_: object, **__: object) -> tuple[dict[str, SyncedStorage], list[str]]:
        return {"storage-1:55280": SyncedStorage("storage-1:55280")}, failures

    monkeypatch.setattr(partitions, "_sync_all", sync_all)
    result = CliRunner().invoke(app, ["storage", "sync", "-z", "127.0.0.1:1", "-r", "/log"])
    assert result.exit_code == len(failures)
    assert "storage-1:55280" in result.stdout
    assert result.stderr == "".join(f"waltz: {each}\n" for each in failures)


@pytest.mark.parametrize("form", ["table", "json"])
def test_sync_that_no_storage_completed_prints_only_its_errors(
    monkeypatch: pytest.MonkeyPatch, form: str
) -> None:
    async def sync_all(*_: object, **__: object) -> tuple[dict[str, SyncedStorage], list[str]]:
        return {}, ["storage storage-9:55280 is unknown"]

    monkeypatch.setattr(partitions, "_sync_all", sync_all)
    words = ["storage", "sync", "storage-9:55280", "-z", "127.0.0.1:1", "-r", "/log", "-o", form]
    result = CliRunner().invoke(app, words)
    assert result.exit_code == 1
    assert (result.stdout, result.stderr) == ("", "waltz: storage storage-9:55280 is unknown\n")
