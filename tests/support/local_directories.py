"""Descriptions of local clusters, and programs that count as their processes."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import count
from pathlib import Path

from waltz.local import ClusterLayout, Shape
from waltz.local.core.plan import LocalClusterPlan, cluster_description


@contextmanager
def started(argument: str, before: str = "") -> Iterator[subprocess.Popen[bytes]]:
    """Start a process with ``argument`` in its command line; it runs until its input is closed.

    It runs the program ``before`` first. The system shows the command line of a process only some
    time after its start.
    """
    program = f"import sys\n{before}print('ready', flush=True)\nsys.stdin.read()"
    command = [sys.executable, "-c", program, argument]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == b"ready\n"
        yield process


def write_description(layout: ClusterLayout, pids: dict[str, int], control: str | None) -> None:
    plan = LocalClusterPlan.of(Shape(partitions=1, storages=1, servers=1), count(20_000))
    part = layout.description.with_suffix(".part")
    part.write_text(json.dumps(cluster_description(plan, layout, pids, control)))
    part.replace(layout.description)


_JAVA = """#!/bin/sh
if [ "$1" = -version ]; then echo 'openjdk version "17.0.2"' >&2; else exec sleep 30; fi
"""


def write_java(home: Path) -> Path:
    """Write a script that stands in for Java, and never answers as ZooKeeper; return its path.

    It is found if ``home`` is the value of JAVA_HOME.
    """
    java = home / "bin" / "java"
    java.parent.mkdir()
    java.write_text(_JAVA)
    java.chmod(0o755)
    return java
