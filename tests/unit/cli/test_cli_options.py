"""Test how options, files and variables name a cluster, and the error if nothing names one."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from typer.testing import CliRunner

from waltz.cli.app import app
from waltz.cli.cluster_options import ClusterNotNamed, Target, named_cluster
from waltz.net import PLAINTEXT, TlsConfig


@pytest.fixture
def described(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    file = tmp_path / "cluster.json"
    file.write_text(json.dumps({"zookeeper": "z:1", "root": "/r", "tls": False}))
    return file


def test_cluster_file_sets_every_option(described: Path) -> None:
    assert named_cluster(None, None, described, None) == Target("z:1", "/r", PLAINTEXT)


def test_directory_of_a_local_cluster_names_it(described: Path) -> None:
    found = named_cluster(None, None, described.parent, None)
    assert found == Target("z:1", "/r", PLAINTEXT)
    assert found.local_directory == described.parent


def test_directory_without_cluster_file_says_how_to_start_the_cluster(tmp_path: Path) -> None:
    with pytest.raises(ClusterNotNamed) as refused:
        named_cluster(None, None, tmp_path, None)
    assert str(refused.value) == (
        f"cannot read {tmp_path}/cluster.json: No such file or directory; the cluster.json of a "
        "local cluster exists only while the cluster runs; start it with: waltz local up --dir "
        f"{tmp_path}"
    )


def test_directory_above_a_local_cluster_is_answered_with_that_of_the_cluster(
    tmp_path: Path,
) -> None:
    (tmp_path / "waltz-local").mkdir()
    (tmp_path / "waltz-local" / "cluster.json").write_text("{}")
    with pytest.raises(ClusterNotNamed, match=f"cluster is in {tmp_path}/waltz-local: name that"):
        named_cluster(None, None, tmp_path, None)


def test_options_override_the_file(described: Path) -> None:
    assert named_cluster("y:2", "/s", described, "on") == Target("y:2", "/s", TlsConfig())


def test_tls_without_option_and_cluster_file_is_left_to_the_servers(described: Path) -> None:
    assert named_cluster("y:2", None, None, None) == Target("y:2", "/waltz", None)
    assert named_cluster("y:2", None, None, "on").tls == TlsConfig()
    assert named_cluster("y:2", None, None, "off").tls == PLAINTEXT


def test_access_option_overrides_the_settings_file(described: Path) -> None:
    settings = described.with_name("cli.yml")
    settings.write_text("zookeeper.connectString: z:1\naccess: outside\n")
    assert named_cluster("y:2").access == "inside"
    assert named_cluster("y:2", access="OUTSIDE").access == "outside"
    assert named_cluster(cluster=described, access="outside").access == "outside"
    assert named_cluster(cluster=settings).access == "outside"
    assert named_cluster(cluster=settings, access="inside").access == "inside"
    with pytest.raises(ClusterNotNamed, match="--access is 'away': it must be inside or outside"):
        named_cluster("y:2", access="away")
    with pytest.raises(ClusterNotNamed, match="--access is empty"):
        named_cluster("y:2", access=" ")


def test_local_cluster_is_found_in_default_directory(described: Path) -> None:
    usual = described.parent / "waltz-local" / "cluster.json"
    usual.parent.mkdir()
    described.rename(usual)
    assert named_cluster(None, None, None, None).zookeeper == "z:1"
    assert named_cluster("y:2", None, None, None).zookeeper == "y:2"


def test_tls_option_reads_file(described: Path) -> None:
    settings = described.with_name("tls.yml")
    settings.write_text("ca: /etc/ca.pem\nserverName: waltz\n")
    tls = named_cluster("y:2", None, None, str(settings)).tls
    assert tls == TlsConfig(ca=Path("/etc/ca.pem"), server_name="waltz")
    settings.write_text("certificat: x\n")
    with pytest.raises(
        ClusterNotNamed, match="unknown setting certificat; did you mean certificate"
    ):
        named_cluster("y:2", None, None, str(settings))


@pytest.mark.parametrize("content", ["", "[]", "{}", "zookeeper: x"])
def test_cluster_file_with_other_content_is_refused(described: Path, content: str) -> None:
    described.write_text(content)
    with pytest.raises(ClusterNotNamed, match=r"is not the cluster\.json of a local cluster"):
        named_cluster(None, None, described, None)


@pytest.mark.usefixtures("described")
def test_missing_cluster_is_a_usage_error() -> None:
    result = CliRunner().invoke(app, ["cluster", "show"], prog_name="waltz")
    assert result.exit_code == 2
    assert result.stderr.startswith("waltz: no cluster is named: use --zookeeper HOST:PORT")


@pytest.mark.usefixtures("described")
@pytest.mark.parametrize(
    "arguments",
    [
        ["log", "append", "0", "x", "--lock", "nothing"],
        ["log", "read", "0", "5-3"],
        ["log", "tail", "x"],
        ["storage", "assign", "s:1", "a-b"],
        ["storage", "switch", "s:1", "0"],
        ["storage", "availability", "s:1", "0", "maybe"],
        ["cluster", "create", "name"],
        ["cluster", "create", "name", "-p", "0"],
        ["local", "up", "--storages", "0"],
        ["cluster", "show", "-o", "xml"],
        ["nothing"],
    ],
)
def test_misuse_is_a_usage_error(arguments: list[str]) -> None:
    where = ["-z", "127.0.0.1:1"] if arguments[0] in ("log", "storage", "cluster") else []
    assert CliRunner().invoke(app, [*arguments, *where]).exit_code == 2
