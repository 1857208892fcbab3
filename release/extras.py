"""``python -m release.extras [EXTRA ...]``: try each extra of the wheel in a fresh environment.

An *extra* is an optional set of dependencies, such as ``waltz-log[cli]``. The program builds the
wheel, and installs it with pip into one new virtual environment per extra, with the versions of
``requirements.lock``. The environment ``local`` runs a cluster. The programs of the other
environments use this cluster as their users would. The program fails if one of these programs
fails, if a command whose extra is missing does not name the extra, or if an environment has a
library that its extra must not bring.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path

from release.versions import ROOT

# The programs of the trials (`TRIALS`). Each runs in the Python of its environment, and ends with
# an error if something does not work.
_CLIENT = """
import json, os, sys, waltz, waltz.sync
described = json.load(open("waltz-local/cluster.json"))
place = (described["zookeeper"], described["root"])
with waltz.sync.connect(place[0], root=place[1], tls=waltz.PLAINTEXT) as client:
    print(client.append(0, b"hello"), list(client.stream(0, until=0, data=True))[0].data)
unwanted = {"aiohttp", "pydantic", "rich", "typer", "yaml"} & set(sys.modules)
assert not unwanted, unwanted
for package, extra in (("waltz.state", "sql"), ("waltz.testing", "testing")):
    try:
        __import__(package)
    except ImportError as missing:
        assert f"pip install 'waltz-log[{extra}]'" in str(missing), missing
    else:
        raise AssertionError(package)
os.environ["WALTZ_TLS"] = "tls.yaml"
try:
    with waltz.sync.connect():
        pass
except ImportError as missing:
    assert str(missing).startswith("WALTZ_TLS with a file needs "), missing
    assert str(missing).endswith(": pip install 'waltz-log[config]'"), missing
else:
    raise AssertionError("WALTZ_TLS with a file")
"""
_CONFIG = """
import asyncio, json, pathlib, waltz
described = json.load(open("waltz-local/cluster.json"))
pathlib.Path("client.yaml").write_text(
    f"zookeeper.connectString: {described['zookeeper']}\\ncluster.root: {described['root']}\\n"
    "zookeeper.sessionTimeout: 30000\\n"
    "client.tls.enabled: false\\n"
)
async def main():
    async with waltz.connect_as_configured("client.yaml") as client:
        assert await client.high_water_mark(0) >= 0
asyncio.run(main())
"""
_COLUMNS = """
import json, waltz, waltz.sync
described = json.load(open("waltz-local/cluster.json"))
place = (described["zookeeper"], described["root"])
with waltz.sync.connect(place[0], root=place[1], tls=waltz.PLAINTEXT) as client:
    [batch] = client.batches(0, until=client.append(0, b"hello"))
assert len(batch.to_pandas()) == batch.to_arrow().num_rows == len(batch)
"""
_SQL = """
import sqlalchemy, waltz.state
class Nothing(waltz.state.StateStore):
    def apply(self, session, transaction):
        raise AssertionError
store = Nothing(sqlalchemy.create_engine("sqlite://"))
store.create_table()
"""
_SPARK = """
import waltz.spark
spark = waltz.spark.session("extra", master="local[1]", settings={"spark.ui.enabled": "false"})
assert spark.read.format("waltz").option("cluster", "waltz-local/cluster.json").load().count() > 0
"""
_TESTING = """
import asyncio
from waltz.testing import InProcessCluster
async def main():
    async with InProcessCluster(seed=7) as cluster, cluster.connect() as client:
        assert await client.append(0, b"hello") == 0
asyncio.run(main())
"""
_CONSOLE = """
import json, pathlib, subprocess, sys, urllib.request
waltz = pathlib.Path(sys.executable).parent / "waltz"
console = subprocess.Popen([waltz, "console", "--port", "0"], stderr=subprocess.PIPE, text=True)
try:
    url = next(word for word in console.stderr.readline().split() if word.startswith("http"))
    assert b"<title>" in urllib.request.urlopen(url).read()
    value = json.load(urllib.request.urlopen(url + "api/cluster"))
    assert value["totals"]["partitions"] > 0, value
finally:
    console.terminate()
"""
_OPERATOR = "import waltz_operator.main, waltz_operator.shell.finalizer_removal\n"
_PROCESSES = """
import contextlib, json, pathlib, re, subprocess, sys, threading, yaml
described = json.load(open("waltz-local/cluster.json"))
cluster = {
    "zookeeper.connectString": described["zookeeper"],
    "zookeeper.sessionTimeout": 6000,
    "cluster.root": described["root"],
}

@contextlib.contextmanager
def started(program, settings, line):
    # Run a process of this environment; yield the match of a line of its log.
    file = pathlib.Path(f"{program}.yml")
    file.write_text(yaml.safe_dump(cluster | settings))
    command = [pathlib.Path(sys.executable).parent / program, file]
    with subprocess.Popen(command, stderr=subprocess.PIPE, text=True) as process:
        limit = threading.Timer(60, process.kill)  # so that the failure shows the log
        limit.daemon = True
        limit.start()
        try:
            shown = []
            found = None
            while found is None:
                text = process.stderr.readline()
                if not text:
                    raise AssertionError(f"{program} ended: {shown}")
                shown.append(text)
                found = re.search(line, text)
            limit.cancel()
            yield found
        finally:
            process.terminate()
            process.stderr.read()
    assert process.returncode == 0, process.returncode

def waltz(*words):
    # Return what a command of the trial `local` prints.
    command = ["environment-local/bin/waltz", *words]
    return subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True).stdout
"""
_SERVER = f"""{_PROCESSES}
settings = {{
    "server.bind.host": "127.0.0.1",
    "server.advertised.host": "127.0.0.1",
    "server.port": 0,
    "server.tls.enabled": False,
}}
with started("waltz-server", settings, "joined with the address .*:([0-9]+)$") as found:
    addresses = [each["endpoint"] for each in json.loads(waltz("server", "list", "-o", "json"))]
    assert f"127.0.0.1:{{found[1]}}" in addresses, addresses
"""
_STORAGE = f"""{_PROCESSES}
pathlib.Path("stored").mkdir()
settings = {{
    "storage.bind.host": "127.0.0.1",
    "storage.port": 0,
    "storage.admin.port": 0,
    "storage.directory": "stored",
    "storage.tls.enabled": False,
}}
with started("waltz-storage", settings, "storage ready: port=([0-9]+) admin=([0-9]+)") as found:
    address = f"127.0.0.1:{{found[1]}}"
    waltz("storage", "add", address, "--admin-port", found[2], "--group", "9")
    waltz("storage", "assign", address, "0")
    storages = json.loads(waltz("storage", "list", "-o", "json"))
    [held] = [each["partitions"] for each in storages if each["storage"] == address]
    assert [each["partition"] for each in held] == [0], held
    waltz("storage", "retire-group", "9", "--yes")
    waltz("storage", "remove", address)
"""


@dataclass(frozen=True, slots=True)
class Trial:
    """What is installed into one environment, and what must then work there.

    ``extras`` are the installed extras. ``program`` is a program in Python, ``commands`` are
    command lines; all of these must succeed. ``refused`` has command lines, each with the extra
    that it needs and that is not installed. Such a command must fail, and print one line that names
    the extra. ``absent`` are distributions that must not be installed.

    All commands run in a directory in which ``waltz local up`` has started a cluster.
    """

    extras: str
    program: str = ""
    commands: tuple[str, ...] = ()
    refused: tuple[tuple[str, str], ...] = ()
    absent: tuple[str, ...] = ()


# The distributions of which the client alone needs none.
_FRAMEWORKS = ("aiohttp", "kopf", "pydantic", "pyspark", "rich", "sqlalchemy", "typer")

TRIALS = {
    "local": Trial("local", commands=("waltz local up --detach", "waltz log append 0 hello")),
    "client": Trial(
        "",
        _CLIENT,
        refused=(
            ("waltz", "cli"),
            ("waltz-server", "server"),
            ("waltz-storage", "storage"),
            ("waltz-operator", "operator"),
        ),
        absent=_FRAMEWORKS,
    ),
    "cli": Trial(
        "cli",
        commands=("waltz log append 0 hello", "waltz log tail 0", "waltz storage list"),
        refused=(
            ("waltz local up --dir other", "local"),
            ("waltz console", "console"),
            ("waltz log export refused --format parquet", "parquet"),
        ),
        absent=("pyspark", "kopf", "sqlalchemy"),
    ),
    "parquet": Trial(
        "cli,parquet",
        commands=("waltz log export exported --format parquet",),
        absent=("pyspark", "pandas"),
    ),
    "columns": Trial("columns", _COLUMNS, absent=("pyspark", "typer", "aiohttp")),
    "console": Trial("console", _CONSOLE, absent=("pyspark", "kopf")),
    "config": Trial("config", _CONFIG, absent=("typer", "aiohttp", "pyspark")),
    "server": Trial("server", _SERVER, ("waltz-server --version", "waltz-server --help")),
    "storage": Trial("storage", _STORAGE, ("waltz-storage --version", "waltz-storage --help")),
    "testing": Trial("testing", _TESTING, absent=("pyspark", "kopf")),
    "sql": Trial("sql", _SQL, absent=("typer", "aiohttp")),
    "operator": Trial(
        "operator",
        _OPERATOR,
        commands=("waltz-operator --version", "waltz-operator plan --help"),
        absent=("kubernetes", "pyspark", "sqlalchemy"),
    ),
    "kubeconfig": Trial("kubeconfig", f"import kubernetes\n{_OPERATOR}", absent=("pyspark",)),
    "spark": Trial("spark", _SPARK, absent=("typer", "aiohttp")),
    "spark-connector": Trial("spark-connector", _SPARK, absent=("pyspark", "typer", "aiohttp")),
}


def main(chosen: list[str]) -> None:
    """Try the extras that are named, or all of them. The trial ``local`` always comes first."""
    unknown = set(chosen) - set(TRIALS)
    if unknown:
        sys.exit(f"there is no extra {', '.join(sorted(unknown))}: choose from {', '.join(TRIALS)}")
    names = [name for name in TRIALS if not chosen or name in chosen or name == "local"]
    with tempfile.TemporaryDirectory() as folder:
        directory = Path(folder)
        wheel = _build_wheel(directory / "wheel")
        environments = {name: Environment(directory, name) for name in names}
        try:
            for name in names:
                begun = time.monotonic()
                environments[name].try_out(wheel, TRIALS[name])
                print(f"{name}: {time.monotonic() - begun:.0f} s", flush=True)
        finally:
            if environments["local"].has("waltz"):
                environments["local"].run("waltz local down")


@dataclass(frozen=True, slots=True)
class Environment:
    """A virtual environment in ``directory``, in which all commands run."""

    directory: Path
    name: str

    @property
    def path(self) -> Path:
        """The environment's directory."""
        return self.directory / f"environment-{self.name}"

    def try_out(self, wheel: Path, trial: Trial) -> None:
        """Make the environment, and do what ``trial`` says. Raises SystemExit if it fails."""
        _run(sys.executable, "-m", "venv", "--without-pip", str(self.path))
        wanted = f"waltz-log[{trial.extras}] @ {wheel.as_uri()}"
        # Compiling all modules would take longer than compiling those that the trial imports.
        options = ("--quiet", "--no-compile", "-c", str(ROOT / "requirements.lock"))
        _run(*self._pip("install"), *options, wanted)
        listed = _run(*self._pip("list"), "--format", "freeze").lower().split()
        unwanted = {line.partition("==")[0] for line in listed} & set(trial.absent)
        if unwanted:
            sys.exit(f"{self.name}: the extra must not install {', '.join(sorted(unwanted))}")
        if trial.program:
            self._expect_success(str(self.path / "bin/python"), "-c", trial.program)
        for command in trial.commands:
            self._expect_success(*self._argv(command))
        for command, extra in trial.refused:
            self._expect_refusal(command, extra)

    def has(self, program: str) -> bool:
        """Whether a package with ``program`` is installed."""
        return (self.path / "bin" / program).exists()

    def run(self, command: str) -> subprocess.CompletedProcess[str]:
        """Run a command line of this environment to its end, even if it fails."""
        return self._run_to_end(*self._argv(command))

    def _pip(self, verb: str) -> tuple[str, ...]:
        return sys.executable, "-m", "pip", "--python", str(self.path / "bin/python"), verb

    def _argv(self, command: str) -> tuple[str, ...]:
        program, *arguments = command.split()
        return str(self.path / "bin" / program), *arguments

    def _expect_success(self, *command: str) -> None:
        ended = self._run_to_end(*command)
        if ended.returncode != 0:
            sys.exit(f"{self.name}: {' '.join(command)} failed\n{ended.stdout}{ended.stderr}")

    def _expect_refusal(self, command: str, extra: str) -> None:
        ended = self.run(command)
        remedy = f"pip install 'waltz-log[{extra}]'"
        if ended.returncode == 0 or remedy not in ended.stderr or ended.stderr.count("\n") != 1:
            sys.exit(f"{self.name}: {command} does not answer with one line: {ended}")

    def _run_to_end(self, *command: str) -> subprocess.CompletedProcess[str]:
        """Run a command in ``directory`` to its end, for at most five minutes."""
        # Variables that would lead to the modules or the settings of this checkout are left out.
        variables = {
            name: value
            for name, value in os.environ.items()
            if name not in ("PYTHONPATH", "VIRTUAL_ENV") and not name.startswith("WALTZ_")
        }
        return subprocess.run(
            command,
            cwd=self.directory,
            env=variables | self._other_spark(),
            capture_output=True,
            text=True,
            timeout=300,
            check=False,
        )

    def _other_spark(self) -> dict[str, str]:
        """Return the variables by which the connector finds the Spark of another environment.

        The extra ``spark-connector`` brings no Spark, as on a cluster of Spark.
        """
        if self.name != "spark-connector":
            return {}
        [home] = (self.directory / "environment-local").glob("lib/*/site-packages/pyspark")
        archives = sorted(map(str, (home / "python/lib").glob("*.zip")))
        return {"SPARK_HOME": str(home), "PYTHONPATH": os.pathsep.join(archives)}


def _build_wheel(folder: Path) -> Path:
    """Build the wheel of this checkout into ``folder``; return its path."""
    _run(sys.executable, "-m", "build", "--wheel", "--outdir", str(folder), str(ROOT))
    [wheel] = folder.glob("*.whl")
    return wheel


def _run(*command: str) -> str:
    """Run a command that prepares an environment; return its output. Raises SystemExit."""
    ended = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=False)
    if ended.returncode != 0:
        sys.exit(f"{' '.join(command)} failed\n{ended.stdout}")
    return ended.stdout


if __name__ == "__main__":
    main(sys.argv[1:])
