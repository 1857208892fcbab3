"""Find the programs of Kafka, or fetch them. Starts processes, writes files.

Kafka comes from the PATH (``kafka-server-start.sh``), or Maven fetches the jars that
`kafka_load/pom.xml` names. They are kept in ``build/peers``.
"""

from __future__ import annotations

import re
import shutil
from collections.abc import Iterable
from pathlib import Path

from bench.peers.go_programs import BUILT
from bench.peers.measured import PeerMissing
from bench.peers.processes import CommandFailed, run_command

SOURCE = Path(__file__).parent / "kafka_load"
_JAR = re.compile(r"kafka_2\.\d+-(\d[\d.]*)\.jar")
"""The jar of the broker: the versions of Scala and of Kafka."""


def kafka_version(names: Iterable[str]) -> str | None:
    """Return the version of the broker among jars with these ``names``, None without a broker."""
    for name in names:
        match = _JAR.fullmatch(name)
        if match is not None:
            return match[1]
    return None


async def kafka_jars() -> tuple[Path, str]:
    """Return the folder of the jars, and the version of Kafka. Raises PeerMissing."""
    # The load generator is compiled when it starts. This needs javac.
    if not shutil.which("java") or not shutil.which("javac"):
        raise PeerMissing("it needs a Java development kit: install Java 17 or later")
    folder = await _find_jars()
    version = kafka_version(path.name for path in folder.glob("*.jar"))
    if version is None:
        raise PeerMissing("the folder of its jars has no broker: install Kafka 4 or later")
    return folder, version


def _installed_jars() -> Path | None:
    """Return the folder of the jars of the Kafka on the PATH."""
    start = shutil.which("kafka-server-start.sh")
    return Path(start).resolve().parents[1] / "libs" if start else None


async def _find_jars() -> Path:
    """Return the folder of the installed jars, or let Maven fetch them. Raises PeerMissing."""
    installed = _installed_jars()
    if installed is not None:
        return installed
    folder, pom = BUILT / "kafka", SOURCE / "pom.xml"
    # Maven copies the jars one after the other. This file says that all are there.
    complete = folder / "complete"
    if complete.exists() and complete.stat().st_mtime >= pom.stat().st_mtime:
        return folder
    maven = shutil.which("mvn")
    if maven is None:
        raise PeerMissing("it is not on the PATH: install Kafka, or Maven, which fetches it")
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    options = ("-DincludeScope=runtime", f"-DoutputDirectory={folder}")
    try:
        await run_command(maven, "-q", "-B", "-f", pom, "dependency:copy-dependencies", *options)
    except CommandFailed as failure:
        print(failure)
        raise PeerMissing("Maven could not fetch it") from failure
    complete.touch()
    return folder
