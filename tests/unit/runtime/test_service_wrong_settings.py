"""Wrong settings, files and arguments of the server, the storage and the operator.

Each is answered by one line on standard error: the object, the reason, and what to do.
"""

from __future__ import annotations

import asyncio
import logging
import os
import shlex
import socket
import sys
import uuid
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import yaml

import waltz_operator.__main__
import waltz_server.main
import waltz_storage.main
from tests.support.wrong_commands import use_cluster, write_files
from waltz.metadata.kazoo_store import KazooStore
from waltz_server.shell.node import ServerEnvironment, ServerNode
from waltz_storage.shell.environment import StorageEnvironment, learn_cluster

TAKEN = "the port of the test"
"""Stands for a port on which the test listens."""
COMMON: dict[str, Any] = {
    "zookeeper.connectString": "127.0.0.1:1",
    "zookeeper.sessionTimeout": 3000,
    "cluster.root": "/waltz/orders",
}
BASE: dict[str, dict[str, Any]] = {
    "server": COMMON | {"server.port": 0, "server.bind.host": "127.0.0.1"},
    "storage": COMMON
    | {
        "storage.port": 0,
        "storage.admin.port": 0,
        "storage.bind.host": "127.0.0.1",
        "storage.directory": "dir",
    },
}
MAIN = {
    "server": waltz_server.main.main,
    "storage": waltz_storage.main.main,
    "operator": waltz_operator.__main__.main,
}
FILES = (
    ("missing.yml", "cannot read missing.yml: No such file or directory"),
    ("dir", "cannot read dir: Is a directory"),
    ("junk.bin", "junk.bin is not valid YAML"),
    ("list.yml", "list.yml must be a YAML map of settings"),
    ("open.yml", "open.yml is not valid YAML"),
    ("nul.yml", "nul.yml is not valid YAML"),
    ("twice.yml", "server.port is set twice, the second time in line 2"),
    ("deep.yml", "deep.yml is nested too deeply"),
    ("a.yml b.yml", "unexpected extra argument(s) (b.yml)"),
    ("--no-such-option", "No such option: --no-such-option"),
)
"""Arguments of both programs, and a part of the answer."""
TLS = (
    ({"tls.enabled": "maybe"}, "expected true or false"),
    ({"tls.enabled": True, "tls.certificate": "x.pem", "tls.key": "x.pem"}, "x.pem"),
    ({"tls.enabled": True, "tls.certificate": "a-file"}, "tls.key"),
)
SETTINGS: dict[str, tuple[tuple[dict[str, Any], str], ...]] = {
    "server": (
        ({"server.port": 70000}, "server.port is 70000: expected a port between 0 and 65535"),
        ({"server.port": -1}, "server.port is -1: expected a port"),
        ({"server.port": "many"}, "server.port is 'many': expected a whole number"),
        ({"server.port": 1.5}, "server.port is 1.5: expected a whole number"),
        ({"server.port": None}, "server.port"),
        ({"server.port": TAKEN}, "ddress already in use"),
        ({"server.jetty.port": TAKEN}, "ddress already in use"),
        ({"server.ports.file": "missing/p"}, "cannot write the ports to missing/p: No such file"),
        (
            {"server.ports.file": "dir"},
            "ports to dir: Is a directory; set server.",
        ),
        ({"server.ports.file": "/"}, "cannot write the ports to /: "),
        ({"server.port": 7000, "server.jetty.port": 7000}, "server.jetty.port must differ"),
        ({"server.bind.host": "203.0.113.7"}, "Cannot assign requested address"),
        ({"server.bind.host": ""}, "server.bind.host is '': must not be empty"),
        ({"server.feedCashSize": 1}, "did you mean server.feedCacheSize?"),
        ({"server.feedCacheSize": 0}, "server.feedCacheSize is 0: expected a number above 0"),
        ({"server.minFetchSize": 5000}, "server.realtimeThreshold must exceed server.minFetchSize"),
        ({"server.access.required": True}, "needs server.tls.enabled and server.tls.ca: set them"),
        ({"cluster.root": "relative"}, "must be an absolute path below '/'"),
        ({"cluster.root": "/waltz/none"}, "there is no Waltz cluster at /waltz/none in ZooKeeper"),
        ({"cluster.root": "/waltz/half"}, "the Waltz cluster at /waltz/half is incomplete"),
        ({"zookeeper.connectString": ""}, "zookeeper.connectString is '': must not be empty"),
        ({"zookeeper.sessionTimeout": 0}, "expected a number above 0"),
        ({"storage.maxBatchSize": 10**30}, "expected a whole number up to"),
        *(({f"server.{k}": v for k, v in each.items()}, says) for each, says in TLS),
    ),
    "storage": (
        ({"storage.port": 70000}, "storage.port is 70000: expected a port between 0 and 65535"),
        ({"storage.port": 7000, "storage.admin.port": 7000}, "must all differ"),
        ({"storage.port": TAKEN}, "ddress already in use"),
        ({"storage.admin.port": TAKEN}, "ddress already in use"),
        ({"storage.jetty.port": TAKEN}, "ddress already in use"),
        ({"storage.ports.file": "missing/p"}, "cannot write the ports to missing/p: No such file"),
        ({"storage.bind.host": "no.such.host.invalid"}, "no.such.host.invalid"),
        ({"storage.directory": "missing"}, "the storage directory missing does not exist: create"),
        ({"storage.directory": "a-file"}, "a-file"),
        ({"storage.directory": ""}, "storage.directory is '': must not be empty"),
        ({"storage.directory": "nul\0"}, "expected a path"),
        ({"storage.directory": "badcontrol"}, "use the directory of this cluster, or an empty one"),
        ({"cluster.root": "/a//b"}, "without a trailing or double slash"),
        ({"storage.directory": "foreign"}, "use the directory of this cluster, or an empty one"),
        ({"storage.metaDirectory": "missing"}, "the storage directory missing does not exist"),
        ({"storage.wal.size": 5}, "storage.wal.size must be at least 1048576 bytes"),
        ({"storage.engine": "rocks"}, "storage.engine is 'rocks': expected one of files, wal"),
        ({"storage.directry": "x"}, "did you mean storage.directory?"),
        ({"storage.scrub.bytesPerSecond": -1}, "expected a number from 0 on"),
        ({"storage.allowedNames": "a"}, "storage.allowedNames needs storage.tls.enabled"),
        ({"storage.allowedNames": ","}, "expected names, separated by commas"),
        ({"cluster.root": "/waltz/none"}, "there is no Waltz cluster at /waltz/none in ZooKeeper"),
        *(({f"storage.{k}": v for k, v in each.items()}, says) for each, says in TLS),
    ),
}
"""By program: settings that are added to usable ones, and a part of the answer."""
KUBE = {"KUBECONFIG": "kubeconfig.yml"}
OPERATOR: tuple[tuple[str, dict[str, str], str], ...] = (
    ("start", {}, "unrecognized arguments: start; see: waltz-operator --help"),
    ("--verbose", {}, "unrecognized arguments: --verbose; see: waltz-operator --help"),
    ("", {"WALTZ_OPERATOR_HTTP_PORT": "http"}, "WALTZ_OPERATOR_HTTP_PORT is 'http': it must be"),
    ("", {"WALTZ_OPERATOR_HTTP_PORT": "70000"}, "it must be a port, a number from 0 to 65535"),
    ("", {"WALTZ_OPERATOR_HTTP_PORT": "-1"}, "WALTZ_OPERATOR_HTTP_PORT is '-1'"),
    ("", {"WALTZ_OPERATOR_HTTP_PORT": "8.5"}, "WALTZ_OPERATOR_HTTP_PORT is '8.5'"),
    ("", {"KUBECONFIG": "missing.yml"}, "or name a kubeconfig by KUBECONFIG"),
    ("", {"KUBECONFIG": "list.yml"}, "or name a kubeconfig by KUBECONFIG"),
    ("", {"KUBECONFIG": "junk.bin"}, "or name a kubeconfig by KUBECONFIG"),
    ("", {"KUBECONFIG": "open.yml"}, "or name a kubeconfig by KUBECONFIG"),
    ("plan x", {"KUBECONFIG": "missing.yml"}, "run in a pod with a service account"),
    ("plan x", {"KUBECONFIG": "dir"}, "no configuration of Kubernetes can be used"),
    ("plan", KUBE, "name a WaltzCluster, or a file with -f"),
    ("plan x", KUBE, "Cannot connect to host 127.0.0.1:1"),
    ("plan --nope", KUBE, "unrecognized arguments: --nope; see: waltz-operator plan --help"),
    ("plan a b", KUBE, "unrecognized arguments: b; see: waltz-operator plan --help"),
    ("plan -f", KUBE, "expected one argument; see: waltz-operator plan --help"),
    ("plan -f missing.yml", KUBE, "cannot read missing.yml: No such file or directory"),
    ("plan -f dir", KUBE, "cannot read dir: Is a directory"),
    ("plan -f junk.bin", KUBE, "junk.bin is not text: name a YAML file"),
    ("plan -f list.yml", KUBE, "a document is no WaltzCluster or StoragePool: remove it"),
    ("plan -f open.yml", KUBE, "YAML"),
    ("plan -f pod.yml", KUBE, "Pod is no WaltzCluster or StoragePool: remove it"),
    ("plan -f noname.yml", KUBE, "a WaltzCluster of the file has no metadata.name: add it"),
    ("plan -f nospec.yml", KUBE, "WaltzCluster x has no spec: add it"),
    ("plan -f empty.json", KUBE, "the file has no resource: give a WaltzCluster or a StoragePool"),
)
"""Arguments, variables, and a part of the answer."""


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("files")
    write_files(folder)
    (folder / "pod.yml").write_text("kind: Pod\n")
    (folder / "noname.yml").write_text("kind: WaltzCluster\n")
    (folder / "nospec.yml").write_text("kind: WaltzCluster\nmetadata: {name: x}\n")
    config = {
        "current-context": "x",
        "contexts": [{"name": "x", "context": {"cluster": "x", "user": "x"}}],
        "clusters": [{"name": "x", "cluster": {"server": "http://127.0.0.1:1"}}],
        "users": [{"name": "x", "user": {"token": "x"}}],
    }
    (folder / "kubeconfig.yml").write_text(yaml.safe_dump(config))
    (folder / "foreign").mkdir()
    control = bytearray((folder / "storage" / "waltz-storage.ctl").read_bytes())
    control[12:28] = uuid.UUID(int=9).bytes
    (folder / "foreign" / "waltz-storage.ctl").write_bytes(control)
    return folder


@pytest.fixture(autouse=True)
def _alone(files: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """The files, a cluster in memory, no variables, and no log lines."""
    monkeypatch.chdir(files)
    monkeypatch.setenv("HOME", str(files))
    for name in os.environ:
        if name.startswith(("WALTZ_", "KUBE")):
            monkeypatch.delenv(name)
    # The processes' own event loop also changes how this process frees memory.
    for module in ("waltz.runtime.service", "waltz_operator.main"):
        monkeypatch.setattr(f"{module}.run_loop", lambda running, **_: asyncio.run(running))
    use_cluster(monkeypatch)
    server = ServerEnvironment(open_store=KazooStore.connect)
    node = partial(ServerNode, environment=server)
    monkeypatch.setattr(waltz_server.main, "ServerNode", node)
    storage = StorageEnvironment(open_store=KazooStore.connect)
    learn = partial(learn_cluster, environment=storage)
    monkeypatch.setattr(waltz_storage.main, "learn_cluster", learn)
    logging.disable(logging.CRITICAL)
    yield
    logging.disable(logging.NOTSET)


def answer_problem(
    process: str, line: str, says: str, capsys: pytest.CaptureFixture[str]
) -> str | None:
    """Run a program in this process; return what is wrong with its answer, None if it is good."""
    typed = f"waltz-{process} {line}"
    before, sys.argv = sys.argv, shlex.split(typed)
    status: object = 0
    try:
        MAIN[process]()
    except SystemExit as ended:
        status = ended.code
    except Exception as error:
        return f"{typed}: {error!r}"
    finally:
        sys.argv = before
    printed = capsys.readouterr()
    # A text as the status is what Python prints at the end of the process.
    shown = f"{status}\n" if isinstance(status, str) else printed.err
    if status == 0:
        return f"{typed} succeeded"
    if printed.out or shown.count("\n") != 1 or not shown.startswith(f"waltz-{process}"):
        return f"{typed} is not answered by one line: {printed.out} {shown}"
    if "Errno" in shown or says not in shown:
        return f"{typed} does not say {says!r}: {shown}"
    return None


@pytest.mark.parametrize("process", ["server", "storage"])
def test_wrong_file_of_service_is_answered_by_one_line(
    process: str, capsys: pytest.CaptureFixture[str]
) -> None:
    found = [answer_problem(process, line, says, capsys) for line, says in FILES]
    assert [problem for problem in found if problem is not None] == []


@pytest.mark.parametrize("process", ["server", "storage"])
def test_wrong_settings_of_a_process_are_reported_in_one_line(
    process: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert len(SETTINGS[process]) >= 20
    bad = []
    with socket.create_server(("127.0.0.1", 0)) as taken:
        for number, (changes, says) in enumerate(SETTINGS[process]):
            port = taken.getsockname()[1]
            changed = {k: port if v == TAKEN else v for k, v in changes.items()}
            file = tmp_path / f"{number}.yml"
            file.write_text(yaml.safe_dump(BASE[process] | changed))
            problem = answer_problem(process, shlex.quote(str(file)), says, capsys)
            bad += [f"{changes}: {problem}"] if problem is not None else []
    assert not bad, "\n".join(bad)


def test_wrong_input_of_operator_is_answered_by_one_line(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert len(OPERATOR) >= 20
    bad = []
    for line, variables, says in OPERATOR:
        with monkeypatch.context() as patched:
            for name, value in variables.items():
                patched.setenv(name, value)
                # The library reads the variable when it is imported.
                place = variables.get("KUBECONFIG", "missing.yml")
                patched.setattr("kubernetes.config.kube_config.KUBE_CONFIG_DEFAULT_LOCATION", place)
            bad.append(answer_problem("operator", line, says, capsys))
    assert [problem for problem in bad if problem is not None] == []
