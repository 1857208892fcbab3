"""``waltz profile``: add, use and list, and the options that a profile stands for."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from typer.testing import CliRunner, Result

from waltz.cli.app import app
from waltz.cli.cluster_options import ClusterNotNamed, Target, named_cluster
from waltz.net import PLAINTEXT


@pytest.fixture(autouse=True)
def _own_configuration(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path))
    monkeypatch.chdir(tmp_path)
    for name in ("ZOOKEEPER", "ROOT", "TLS", "CLUSTER", "PROFILE", "ACCESS"):
        monkeypatch.delenv(f"WALTZ_{name}", raising=False)


def waltz(*arguments: str) -> Result:
    return CliRunner().invoke(app, ["profile", *arguments])


def test_first_profile_is_in_use_and_names_the_cluster() -> None:
    assert "saved in" in waltz("add", "staging", "-z", "zk:1", "-r", "/s", "--tls", "off").stderr
    assert waltz("add", "prod", "-z", "zk:2").exit_code == 0
    assert named_cluster() == Target("zk:1", "/s", PLAINTEXT)
    assert named_cluster(profile="prod") == Target("zk:2", "/waltz", None)
    assert named_cluster(profile="prod", root="/r", tls="off") == Target("zk:2", "/r", PLAINTEXT)
    assert named_cluster("z:9").zookeeper == "z:9"


def test_profile_add_and_use_report_changes_with_their_steps() -> None:
    added = json.loads(waltz("add", "staging", "-z", "zk:1", "-o", "json").stdout)
    assert (added["action"], added["object"]) == ("profile add", "staging")
    assert (added["outcome"], added["steps"][1:]) == ("changed", ["use profile staging"])
    used = json.loads(waltz("use", "--none", "-o", "json").stdout)
    assert (used["action"], used["steps"]) == ("profile use", ["use no profile"])


def test_list_shows_the_profile_in_use() -> None:
    waltz("add", "staging", "-z", "zk:1")
    waltz("add", "prod", "-z", "zk:2")
    assert waltz("use", "prod").exit_code == 0
    listed = json.loads(waltz("list", "-o", "json").stdout)
    assert [(each["name"], each["used"]) for each in listed] == [("prod", True), ("staging", False)]
    waltz("use", "--none")
    with pytest.raises(ClusterNotNamed, match="--profile NAME"):
        named_cluster()


def test_profile_has_an_access_that_an_option_overrides() -> None:
    assert waltz("add", "home", "-z", "zk:1", "--access", "outside").exit_code == 0
    assert named_cluster().access == "outside"
    assert named_cluster(access="inside").access == "inside"
    waltz("add", "here", "-z", "zk:1")
    listed = json.loads(waltz("list", "-o", "json").stdout)
    assert [each["access"] for each in listed] == ["inside", "outside"]


def test_error_about_the_tls_file_of_a_profile_names_the_profile(tmp_path: Path) -> None:
    tls = tmp_path / "tls.yml"
    tls.write_text("enabled: true")
    assert waltz("add", "staging", "-z", "zk:1", "--tls", str(tls)).exit_code == 0
    tls.unlink()
    with pytest.raises(ClusterNotNamed, match=r"^the tls of the profile must be on, off or a file"):
        named_cluster()


def test_option_and_file_together_are_refused(tmp_path: Path) -> None:
    with pytest.raises(ClusterNotNamed, match="both name a cluster"):
        named_cluster(cluster=tmp_path / "cluster.json", profile="x")


@pytest.mark.parametrize(
    ("arguments", "part"),
    [
        (("use", "missing"), "there is no profile 'missing'"),
        (("use",), "either the name of a profile, or --none"),
        (("add", "x"), "needs the addresses of ZooKeeper"),
        (("add", " x", "-z", "zk:1"), "cannot be the name of a profile"),
        (("add", "x", "-z", "zk:1", "-r", "relative"), "relative"),
        (("add", "x", "-z", "zk:1", "--tls", "missing.yml"), "missing.yml"),
        (("add", "x", "-z", "zk:1", "--access", "away"), "--access is 'away'"),
    ],
)
def test_wrong_input_is_one_line(arguments: tuple[str, ...], part: str) -> None:
    result = waltz(*arguments)
    assert result.exit_code != 0
    assert part in result.stderr.replace("\n", " ").replace("│", "").replace("  ", " ")
    assert "Traceback" not in result.output


def test_profile_of_a_verb_is_an_option(tmp_path: Path) -> None:
    waltz("add", "here", "-z", "127.0.0.1:1")
    arguments = ["doctor", "--profile", "here", "--timeout", "0.1"]
    result = CliRunner().invoke(app, arguments)
    assert "ZooKeeper does not answer" in result.stdout
