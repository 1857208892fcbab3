"""Run ZooKeeper as a child process, from pyspark's jars. Touches disk, processes, the network.

The server needs Java and an installed pyspark. It listens on one address, and keeps all data in one
directory. Its memory is small, but suffices for one small cluster. All methods block.
"""

from __future__ import annotations

import importlib.util
import os
import re
import shutil
import socket
import struct
import subprocess
import threading
import time
from collections.abc import Callable
from pathlib import Path

from waltz.local.core.plan import HOST
from waltz.local.core.properties import escape_value
from waltz.local.ports import is_no_own_address
from waltz.net import join_address
from waltz.net.tls import PLAINTEXT, TlsConfig

MINIMUM_JAVA = 17
"""The oldest version of Java that works. The jars are those of pyspark 4, which needs it."""

_START_TIMEOUT_S = 30.0
_STOP_TIMEOUT_S = 10.0
_POLL_S = 0.02

_JARS = (
    "zookeeper-3*.jar",
    "zookeeper-jute-3*.jar",
    "metrics-core-4*.jar",
    "snappy-java-1*.jar",
    "slf4j-api-2*.jar",
    "log4j-slf4j2-impl-2*.jar",
    "log4j-api-2*.jar",
    "log4j-core-2*.jar",
)
"""The jars of pyspark that ZooKeeper needs."""

_TLS_JARS = (
    "netty-buffer-4*.jar",
    "netty-codec-4*.jar",
    "netty-codec-base-4*.jar",
    "netty-common-4*.jar",
    "netty-handler-4*.jar",
    "netty-resolver-4*.jar",
    "netty-transport-4*.jar",
    "netty-transport-classes-epoll-4*.jar",
    "netty-transport-native-unix-common-4*.jar",
)
"""The jars that ZooKeeper needs in addition if it uses TLS."""

_JVM_OPTIONS = (
    "-Xmx128m",
    # The collector and the compiler that need the fewest threads and the least memory.
    "-XX:+UseSerialGC",
    "-XX:TieredStopAtLevel=1",
    # Transaction log files grow by this many KiB, not by 64 MiB.
    "-Dzookeeper.preAllocSize=1024",
)

_CONFIG = """\
dataDir={data}
admin.enableServer=false
4lw.commands.whitelist=
tickTime=500
minSessionTimeout=1000
maxSessionTimeout=60000
maxClientCnxns=0
autopurge.purgeInterval=1
"""
"""ZooKeeper ends sessions with the precision of a tick, so ticks are short. ``maxClientCnxns=0``
sets no limit for the connections from one address: all processes may have the same address. The
admin server is off, because it would listen on a port of its own, the same one for each cluster.
Every hour (``purgeInterval``) ZooKeeper deletes old snapshots and the logs before them."""

_PLAINTEXT_PORT = """\
clientPortAddress={host}
clientPort={port}
"""

_TLS_PORT = """\
secureClientPortAddress={host}
secureClientPort={port}
serverCnxnFactory=org.apache.zookeeper.server.NettyServerCnxnFactory
ssl.keyStore.location={identity}
ssl.keyStore.type=PEM
ssl.trustStore.location={ca}
ssl.trustStore.type=PEM
ssl.clientAuth=need
"""

_LOGGING = """\
status = error
appender.out.type = Console
appender.out.name = out
appender.out.layout.type = PatternLayout
appender.out.layout.pattern = %d %-5p %c{1} %m%n
rootLogger.level = info
rootLogger.appenderRef.out.ref = out
"""
"""The level is info, because `_learn_port` reads the port from a message of this level."""

# What ZooKeeper logs when it listens: the port, with or without the address before it.
_BOUND = re.compile(rb"bound to port (?:/[0-9.]+:)?([0-9]+)")
# Java 8 and earlier versions call themselves 1.8 and so on.
_JAVA_VERSION = re.compile(r'version "(?:1\.)?([0-9]+)')


class ZooKeeperNotStarted(RuntimeError):
    """ZooKeeper could not be started; the message says why and what to do."""


class ZooKeeperProcess:
    """One ZooKeeper server, whose files are all below ``directory``.

    The server listens on ``host``. If ``port`` is None, the system chooses a free port at the first
    start; later starts keep this port. If ``tls`` is enabled, it must have a certificate and a CA.
    The server then accepts only processes with a certificate of that CA.
    """

    def __init__(
        self,
        directory: Path,
        port: int | None = None,
        tls: TlsConfig = PLAINTEXT,
        host: str = HOST,
    ) -> None:
        self._directory = directory
        self._port = port
        """None or 0 if the system chooses the port, until the server has bound one."""
        self._tls = tls
        self._host = host
        self._process: subprocess.Popen[bytes] | None = None
        self._start_lock = threading.Lock()

    @property
    def log_path(self) -> Path:
        """The file to which the server's output is appended."""
        return self._directory / "zookeeper.log"

    @property
    def connect_string(self) -> str:
        """The address of the server; raises RuntimeError if the port is not known yet."""
        if not self._port:
            raise RuntimeError("ZooKeeper has no port before its first start")
        return join_address(self._host, self._port)

    @property
    def pid(self) -> int | None:
        """The process id, None while the server does not run."""
        if self._process is None or self._process.poll() is not None:
            return None
        return self._process.pid

    def start(self, on_launch: Callable[[], None] = lambda: None) -> None:
        """Start the server, if it does not run, and wait until it opens sessions.

        ``on_launch`` is called as soon as the process exists, before the wait. Several threads may
        call this method at the same time.

        Raises ZooKeeperNotStarted if Java is missing or too old, pyspark is missing, the port is in
        use, the directory cannot be used, or the server exits or does not answer in time.
        """
        # Without the lock, two threads that find no server would start one server each. The second
        # server would not get the port. The first server would continue, but this object would know
        # only the second one (test_simultaneous_starts_start_one_server).
        with self._start_lock:
            if self.pid is None:
                self._start(on_launch)

    def _start(self, on_launch: Callable[[], None]) -> None:
        """Do what `start` does. The caller makes sure that no server runs or is being started."""
        if self._port:
            _check_free(self._host, self._port)
        java = find_java()
        class_path = os.pathsep.join(map(str, find_jars(tls=self._tls.enabled)))
        try:
            config, logging_config = self._write_config()
        except OSError as problem:
            raise ZooKeeperNotStarted(
                f"ZooKeeper did not start: its directory {self._directory} cannot be used "
                f"({problem})"
            ) from problem
        command = [java, *_JVM_OPTIONS, f"-Dlog4j2.configurationFile={logging_config}"]
        command += ["-cp", class_path, "org.apache.zookeeper.server.ZooKeeperServerMain"]
        with self.log_path.open("ab") as log:
            log_start = log.tell()
            # In a session of its own, the server does not get Ctrl-C. The parent stops the server.
            self._process = subprocess.Popen(
                [*command, str(config)],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )
        try:
            on_launch()
            self._await_answer(self._process, log_start)
        except BaseException:
            self.kill()
            raise

    def stop(self) -> None:
        """Terminate the server and wait for its exit; kill it if it does not exit in time."""
        if self._process is None:
            return
        self._process.terminate()
        try:
            self._process.wait(_STOP_TIMEOUT_S)
        except subprocess.TimeoutExpired:
            self.kill()

    def kill(self) -> None:
        """Kill the server and wait for its exit. The effect is that of a crash."""
        if self._process is not None:
            self._process.kill()
            self._process.wait()

    def _write_config(self) -> tuple[Path, Path]:
        """Write the server's configuration and its logging configuration; return both paths."""
        data = self._directory.resolve() / "data"
        data.mkdir(parents=True, exist_ok=True)
        config = data.with_name("zoo.cfg")
        config.write_text(_fill(_CONFIG, data=data) + self._write_port_config())
        logging_config = data.with_name("log4j2.properties")
        logging_config.write_text(_LOGGING)
        return config, logging_config

    def _write_port_config(self) -> str:
        """Return the lines about the port for clients; with TLS, also write the identity file."""
        tls, port = self._tls, self._port or 0
        if not tls.enabled:
            return _fill(_PLAINTEXT_PORT, host=self._host, port=port)
        assert tls.certificate is not None, "ZooKeeper needs a certificate"
        assert tls.key is not None, "ZooKeeper needs the key of its certificate"
        # ZooKeeper reads the key and the certificate from one file. Only this user may read the
        # key, so the file gets its permissions before it gets the key.
        identity = self._directory.resolve() / "identity.pem"
        identity.touch(mode=0o600)
        identity.write_bytes(tls.key.read_bytes() + tls.certificate.read_bytes())
        return _fill(_TLS_PORT, host=self._host, port=port, identity=identity, ca=tls.ca)

    def _await_answer(self, process: subprocess.Popen[bytes], log_start: int) -> None:
        """Wait until the server opens sessions. Raises ZooKeeperNotStarted.

        ``log_start`` is the size of the log before this start.
        """
        deadline = time.monotonic() + _START_TIMEOUT_S

        def wait_until(is_reached: Callable[[], bool], failure: str) -> None:
            """Wait until ``is_reached`` returns true.

            ``failure`` is the middle of the error text "it … within 30 s".
            """
            while not is_reached():
                if process.poll() is not None:
                    raise self._not_started(f"it exited with status {process.returncode}")
                if time.monotonic() > deadline:
                    raise self._not_started(f"it {failure} within {_START_TIMEOUT_S:g} s")
                try:
                    process.wait(_POLL_S)
                except subprocess.TimeoutExpired:
                    continue

        if not self._port:
            wait_until(lambda: self._learn_port(log_start), "bound no port")
        wait_until(self._opens_session, "opened no session")

    def _learn_port(self, log_start: int) -> bool:
        """Read the server's port from its log. Return false if the log does not have it yet."""
        with self.log_path.open("rb") as log:
            log.seek(log_start)
            bound = _BOUND.search(log.read())
        if bound is None:
            return False
        self._port = int(bound[1])
        return True

    def _opens_session(self) -> bool:
        """Return whether the server answers a request to open a session.

        It is not enough that the server accepts a connection: a server that is still starting
        accepts connections, and closes them without an answer.
        """
        # Protocol version, last transaction seen, session timeout in ms, session id, the length and
        # the bytes of the password, whether a read-only server suffices.
        request = struct.pack(">iqiqi16s?", 0, 0, 1000, 0, 16, b"", False)
        try:
            with self._connect() as connection:
                connection.sendall(struct.pack(">i", len(request)) + request)
                return bool(connection.recv(1))
        except OSError:
            return False

    def _connect(self) -> socket.socket:
        """Connect to the server, by TLS if it is enabled; raises OSError."""
        plain = socket.create_connection((self._host, self._port or 0), timeout=1)
        context = self._tls.dialing_context()
        if context is None:
            return plain
        # If the handshake fails, this closes `plain`. Otherwise `wrap_socket` has detached `plain`
        # from the connection, and closing it has no effect.
        with plain:
            return context.wrap_socket(plain, server_hostname=self._tls.server_name or self._host)

    def _not_started(self, reason: str) -> ZooKeeperNotStarted:
        """Return the error for ``reason``, with the last message in the log."""
        lines = self.log_path.read_text(errors="replace").splitlines()
        # The lines of a Java stack trace are indented; the message is in the line before them.
        last = next((line for line in reversed(lines) if line and not line[0].isspace()), "")
        return ZooKeeperNotStarted(
            f"ZooKeeper did not start: {reason}. Its log, {self.log_path}, ends with: {last}"
        )


def _fill(template: str, **values: object) -> str:
    """Return the lines of ``template`` for ``zoo.cfg``, with ``values`` in place of their names."""
    return template.format_map({key: escape_value(str(value)) for key, value in values.items()})


def _check_free(host: str, port: int) -> None:
    """Raise ZooKeeperNotStarted if ZooKeeper cannot listen on ``port`` of ``host``.

    The texts suggest no other port or address, because a cluster keeps those of its first start.
    """
    # Without this check, `start` would take another ZooKeeper on the port for its own server.
    with socket.socket() as probe:
        # Connections that an earlier server has closed must not count as a use of the port.
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((host, port))
        except OSError as problem:
            why = (
                f"cannot listen on {host} ({problem.strerror}), as at its first start; make "
                f"{host} an address of this machine again, or start a new cluster in another "
                "directory"
                if is_no_own_address(problem)
                else f"port {port} cannot be used ({problem.strerror}); end the process that uses "
                "it"
            )
            raise ZooKeeperNotStarted(f"ZooKeeper did not start: {why}") from problem


def find_java() -> str:
    """Return the path of the program ``java``, from JAVA_HOME if it is set, else from the PATH.

    Raises ZooKeeperNotStarted if the program is missing or older than `MINIMUM_JAVA`.
    """
    home = os.environ.get("JAVA_HOME")
    java = shutil.which("java", path=str(Path(home) / "bin") if home else None)
    if java is None:
        where = f"JAVA_HOME ({home})" if home else "the PATH"
        raise ZooKeeperNotStarted(
            f"ZooKeeper needs Java {MINIMUM_JAVA} or newer, and there is no java in {where}; "
            "install one, or set JAVA_HOME"
        )
    answer = subprocess.run([java, "-version"], capture_output=True, text=True, check=False)
    banner = (answer.stderr or answer.stdout).strip()
    version = _JAVA_VERSION.search(banner)
    if version is None:
        raise ZooKeeperNotStarted(f"{java} -version printed no version, but: {banner!r}")
    if int(version[1]) < MINIMUM_JAVA:
        raise ZooKeeperNotStarted(
            f"ZooKeeper needs Java {MINIMUM_JAVA} or newer, and {java} is Java {version[1]}; "
            "install a newer one, or set JAVA_HOME to it"
        )
    return java


def find_jars(*, tls: bool = False) -> list[Path]:
    """Return the jars of the installed pyspark that ZooKeeper needs, with ``tls`` also for TLS.

    Raises ZooKeeperNotStarted.
    """
    spec = importlib.util.find_spec("pyspark")
    if spec is None or spec.origin is None:
        raise ZooKeeperNotStarted(
            "ZooKeeper's jars come with pyspark, which is not installed: "
            "pip install 'waltz-log[local]'"
        )
    folder = Path(spec.origin).parent / "jars"
    paths: list[Path] = []
    for pattern in (*_JARS, *(_TLS_JARS if tls else ())):
        jars = sorted(folder.glob(pattern))
        if not jars:
            raise ZooKeeperNotStarted(
                f"the installed pyspark has no {pattern} in {folder}; install pyspark 4"
            )
        paths.append(jars[-1])
    return paths
