"""The starts of ZooKeeper's process; a script stands in for Java."""

from __future__ import annotations

import contextlib
import socket
import subprocess
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from tests.support.local_directories import write_java
from waltz.local import ZooKeeperNotStarted, zookeeper
from waltz.local.core.properties import escape_value
from waltz.local.zookeeper import ZooKeeperProcess
from waltz.net.tls import TlsConfig


def test_zookeeper_that_does_not_answer_in_time_is_killed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_java(tmp_path)
    monkeypatch.setenv("JAVA_HOME", str(tmp_path))
    monkeypatch.setattr(zookeeper, "_START_TIMEOUT_S", 0.1)
    process = ZooKeeperProcess(tmp_path / "zk")
    try:
        with pytest.raises(ZooKeeperNotStarted, match=r"it bound no port within 0\.1 s"):
            process.start()
        assert process.pid is None
    finally:
        process.kill()


def test_simultaneous_starts_start_one_server(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    servers: list[subprocess.Popen[bytes]] = []
    both_launch, java = threading.Barrier(2), str(write_java(tmp_path))

    def answer(_: ZooKeeperProcess, server: subprocess.Popen[bytes], __: int) -> None:
        servers.append(server)

    def find_java() -> str:
        """Wait a moment for the other thread, which gets here if it may launch a server, too."""
        with contextlib.suppress(threading.BrokenBarrierError):
            both_launch.wait(0.1)
        return java

    monkeypatch.setattr(ZooKeeperProcess, "_await_answer", answer)
    monkeypatch.setattr(zookeeper, "find_java", find_java)
    process = ZooKeeperProcess(tmp_path / "zk")
    try:
        with ThreadPoolExecutor(2) as threads:
            for start in [threads.submit(process.start) for _ in range(2)]:
                start.result()
        assert [server.pid for server in servers] == [process.pid]
    finally:
        for server in servers:
            server.kill()
            server.wait()


def read_properties(path: Path) -> dict[str, str]:
    """Return what ``java.util.Properties`` reads from the file, for lines of the form KEY=VALUE."""
    pairs = (line.split("=", 1) for line in path.read_text(encoding="iso-8859-1").splitlines())
    return {key: unescape(value.lstrip()) for key, value in pairs}


def unescape(value: str) -> str:
    """Return the characters for the escape sequences; those of pairs of surrogates are joined."""
    units = value.encode("iso-8859-1").decode("unicode_escape")
    return units.encode("utf-16", "surrogatepass").decode("utf-16")


@pytest.mark.parametrize("name", ["größe", "w\\new", "😀 w", "a=b:c#d!", "line\nend"])
def test_configuration_keeps_every_character_of_its_paths(tmp_path: Path, name: str) -> None:
    folder = tmp_path / name
    folder.mkdir()
    pem = folder / "own.pem"
    pem.touch()
    tls = TlsConfig(enabled=True, certificate=pem, key=pem, ca=pem)
    config, _ = ZooKeeperProcess(folder, tls=tls)._write_config()
    assert config.read_bytes().isascii()
    values = read_properties(config)
    assert values["dataDir"] == str(folder / "data")
    assert values["ssl.keyStore.location"] == str(folder / "identity.pem")
    assert values["ssl.trustStore.location"] == str(pem)


def test_value_of_properties_file_keeps_spaces_at_its_begin() -> None:
    assert unescape(escape_value("  a b").lstrip()) == "  a b"


def refusal_of_port(host: str, port: int) -> str:
    """Return why ZooKeeper cannot listen on ``port`` of ``host``."""
    with pytest.raises(ZooKeeperNotStarted) as refused:
        zookeeper._check_free(host, port)
    return str(refused.value)


@pytest.mark.parametrize("cause", ["Cannot assign requested address", "Name or service not known"])
def test_host_that_is_no_address_any_more_is_named_as_the_cause(
    monkeypatch: pytest.MonkeyPatch, cause: str
) -> None:
    host = "192.0.2.1"  # An address for documentation, which no machine has.
    if cause.startswith("Name"):

        def fail(_: socket.socket, __: object) -> None:
            raise socket.gaierror(socket.EAI_NONAME, cause)

        host = "old-name"
        monkeypatch.setattr(socket.socket, "bind", fail)
    assert refusal_of_port(host, 2181) == (
        f"ZooKeeper did not start: cannot listen on {host} ({cause}), as at its first start; make "
        f"{host} an address of this machine again, or start a new cluster in another directory"
    )


def test_planned_port_that_another_process_uses_names_no_other_port() -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        assert refusal_of_port("127.0.0.1", port) == (
            f"ZooKeeper did not start: port {port} cannot be used (Address already in use); end "
            "the process that uses it"
        )
