"""``waltz profile``: add, use, remove and list, and the options that a profile stands for."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest
import typer
from typer.testing import CliRunner, Result

from waltz.cli.app import app
from waltz.cli.cluster_options import (
    ClusterCommand,
    ClusterNotNamed,
    Target,
    named_cluster,
    target,
)
from waltz.net import PLAINTEXT, TlsConfig


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


def test_removed_profile_is_not_in_use_any_more() -> None:
    for name in ("staging", "prod"):
        waltz("add", name, "-z", "zk:1")
    assert waltz("remove", "prod").exit_code == 0
    assert named_cluster() == Target("zk:1", "/waltz", None)
    removed = json.loads(waltz("remove", "staging", "-o", "json").stdout)
    assert (removed["action"], removed["object"]) == ("profile remove", "staging")
    assert removed["steps"][1:] == ["use no profile"]
    with pytest.raises(ClusterNotNamed):
        named_cluster()
    assert "there is no profile 'prod'" in waltz("remove", "prod").stderr


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


def test_bad_access_of_a_profile_is_refused_only_without_the_option(tmp_path: Path) -> None:
    waltz("add", "home", "-z", "zk:1", "--access", "outside")
    profiles = tmp_path / "waltz" / "profiles.json"
    profiles.write_text(profiles.read_text().replace('"outside"', '"away"'))
    with pytest.raises(ClusterNotNamed, match=r"^the access of the profile is 'away'"):
        named_cluster()
    assert named_cluster(access="inside").access == "inside"


def shown_target(options: list[str], variables: dict[str, str]) -> tuple[Result, list[Target]]:
    """Run a verb; return its result, and the cluster that it works on."""
    verb = typer.Typer(add_completion=False)
    targets: list[Target] = []

    @verb.command(cls=ClusterCommand)
    def show(context: typer.Context) -> None:
        targets.append(target(context))
        print(target(context).zookeeper)

    return CliRunner().invoke(verb, options, env=variables), targets


def show_zookeeper(options: list[str], variables: dict[str, str]) -> Result:
    """Run a verb that prints the ZooKeeper of its cluster."""
    return shown_target(options, variables)[0]


EVERYTHING = {
    "WALTZ_ZOOKEEPER": "zk:8",
    "WALTZ_ROOT": "/exported",
    "WALTZ_TLS": "on",
    "WALTZ_ACCESS": "inside",
}
"""Variables that name another cluster, completely."""


@pytest.fixture
def described(tmp_path: Path) -> None:
    """Make one cluster file of each kind, and the profile ``prod``."""
    description = {"zookeeper": "zk:1", "root": "/r", "tls": False}
    (tmp_path / "file.json").write_text(json.dumps(description))
    (tmp_path / "file.yml").write_text(
        "zookeeper.connectString: zk:3\ncluster.root: /y\naccess: outside\ntls.enabled: false\n"
    )
    waltz("add", "prod", "-z", "zk:2", "-r", "/p", "--tls", "off", "--access", "outside")


JSON_TARGET = Target("zk:1", "/r", PLAINTEXT)
YAML_TARGET = Target("zk:3", "/y", PLAINTEXT, access="outside")
PROFILE_TARGET = Target("zk:2", "/p", PLAINTEXT, access="outside")


@pytest.mark.usefixtures("described")
@pytest.mark.parametrize(
    ("options", "variables", "wanted"),
    [
        (["--profile", "prod"], {}, PROFILE_TARGET),
        (["--profile", "prod"], {"WALTZ_CLUSTER": "file.json"}, PROFILE_TARGET),
        (["--profile", "prod", "-r", "/typed"], {}, replace(PROFILE_TARGET, root="/typed")),
        (["--profile", "prod", "-z", "zk:9"], {}, replace(PROFILE_TARGET, zookeeper="zk:9")),
        (
            ["--profile", "prod", "--tls", "on", "--access", "inside"],
            {},
            Target("zk:2", "/p", TlsConfig()),
        ),
        (["--cluster", "file.json"], {}, JSON_TARGET),
        (["--cluster", "file.json"], {"WALTZ_PROFILE": "prod"}, JSON_TARGET),
        (["-c", "file.json", "--access", "outside"], {}, replace(JSON_TARGET, access="outside")),
        (["--cluster", "file.yml"], {}, YAML_TARGET),
        (["--cluster", "file.yml", "-r", "/typed"], {}, replace(YAML_TARGET, root="/typed")),
    ],
)
def test_typed_file_or_profile_ignores_variables_of_another_cluster(
    options: list[str], variables: dict[str, str], wanted: Target
) -> None:
    result, targets = shown_target(options, EVERYTHING | variables)
    assert targets == [wanted], result.stderr


@pytest.mark.usefixtures("described")
def test_typed_file_belongs_to_its_local_cluster_also_if_a_variable_names_another(
    tmp_path: Path,
) -> None:
    _, [found] = shown_target(["-c", str(tmp_path / "file.json")], EVERYTHING)
    assert found.local_directory == tmp_path


@pytest.mark.usefixtures("described")
@pytest.mark.parametrize(
    "variables",
    [
        {"WALTZ_PROFILE": "prod"},
        {"WALTZ_CLUSTER": "file.json"},
        {"WALTZ_CLUSTER": "file.yml"},
        {"WALTZ_CLUSTER": "file.json", "WALTZ_PROFILE": "prod"},
    ],
)
def test_typed_zookeeper_ignores_file_and_profile_of_the_environment(
    variables: dict[str, str],
) -> None:
    result, targets = shown_target(["-z", "zk:9"], variables)
    assert targets == [Target("zk:9", "/waltz", None)], result.stderr
    _, targets = shown_target(["-z", "zk:9"], EVERYTHING | variables)
    assert targets == [Target("zk:9", "/exported", TlsConfig())]


@pytest.mark.usefixtures("described")
@pytest.mark.parametrize(
    ("options", "variables", "wanted"),
    [
        ([], EVERYTHING, Target("zk:8", "/exported", TlsConfig())),
        (["-r", "/typed"], EVERYTHING, Target("zk:8", "/typed", TlsConfig())),
        ([], {"WALTZ_CLUSTER": "file.json"}, JSON_TARGET),
        ([], {"WALTZ_CLUSTER": "file.yml"}, YAML_TARGET),
        ([], {"WALTZ_PROFILE": "prod"}, PROFILE_TARGET),
        (["-r", "/typed"], {"WALTZ_PROFILE": "prod"}, replace(PROFILE_TARGET, root="/typed")),
        *(
            ([], EVERYTHING | name, Target("zk:8", "/exported", TlsConfig()))
            for name in (
                {"WALTZ_CLUSTER": "file.json"},
                {"WALTZ_CLUSTER": "file.yml"},
                {"WALTZ_PROFILE": "prod"},
            )
        ),
    ],
)
def test_variables_together_override_file_and_profile_of_the_environment(
    options: list[str], variables: dict[str, str], wanted: Target
) -> None:
    result, targets = shown_target(options, variables)
    assert targets == [wanted], result.stderr


@pytest.mark.parametrize(
    ("options", "variables", "zookeeper"),
    [
        (["--cluster", "file.json"], {"WALTZ_PROFILE": "prod"}, "zk:1"),
        (["--profile", "prod"], {"WALTZ_CLUSTER": "file.json"}, "zk:2"),
        (["--cluster", "file.json"], {"WALTZ_CLUSTER": "a", "WALTZ_PROFILE": "b"}, "zk:1"),
        (["--profile", "prod"], {"WALTZ_CLUSTER": "a", "WALTZ_PROFILE": "b"}, "zk:2"),
        ([], {"WALTZ_PROFILE": "prod"}, "zk:2"),
    ],
)
def test_option_that_names_a_cluster_overrides_the_environment(
    tmp_path: Path, options: list[str], variables: dict[str, str], zookeeper: str
) -> None:
    description = {"zookeeper": "zk:1", "root": "/r", "tls": False}
    (tmp_path / "file.json").write_text(json.dumps(description))
    waltz("add", "prod", "-z", "zk:2")
    shown = show_zookeeper(options, variables)
    assert (shown.stdout, shown.stderr) == (f"{zookeeper}\n", "")


@pytest.mark.parametrize(
    ("options", "variables", "says"),
    [
        (
            ["--cluster", "file.json", "--profile", "prod"],
            {"WALTZ_CLUSTER": "a", "WALTZ_PROFILE": "b"},
            "--cluster and --profile both name a cluster: give one of them",
        ),
        (
            [],
            {"WALTZ_CLUSTER": "file.json", "WALTZ_PROFILE": "prod"},
            "the variables WALTZ_CLUSTER and WALTZ_PROFILE both name a cluster: unset one of them, "
            "or give --cluster or --profile",
        ),
    ],
)
def test_file_and_profile_of_the_same_source_are_refused(
    options: list[str], variables: dict[str, str], says: str
) -> None:
    shown = show_zookeeper(options, variables)
    assert shown.exit_code == 2
    assert says in " ".join(shown.stderr.replace("│", "").split())


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
