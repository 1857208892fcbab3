"""Define the images: their names, contents and entry points. Reads pyproject.toml."""

from __future__ import annotations

import tomllib
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

ROOT = Path(__file__).parents[1]
"""The root of the repository."""

_SPARK_FILES = ROOT / "images" / "spark"


@dataclass(frozen=True, slots=True)
class Image:
    """One image of a component.

    ``extras`` are the extras of pyproject.toml whose dependencies the image contains; without
    extras the image has no Python code. ``environment`` has settings of the form ``NAME=VALUE``, as
    they are with a base that has none. ``java`` is true if the image also has Java. ``files`` are
    further files by their paths in the image.
    """

    component: str
    extras: tuple[str, ...]
    entrypoint: tuple[str, ...]
    environment: tuple[str, ...] = ()
    java: bool = False
    files: Mapping[str, Path] = field(default_factory=dict)

    @property
    def dockerfile(self) -> Path:
        """The Dockerfile of the image."""
        return ROOT / f"Dockerfile.{self.component}"

    @property
    def tag(self) -> str:
        """The name and tag of the image, which the chart and the resources use by default."""
        return f"waltz-{self.component}:{version()}"


_PYTHON_ENVIRONMENT = ("PYTHONPATH=/app", "PYTHONDONTWRITEBYTECODE=1", "PYTHONUNBUFFERED=1")
_PROGRAMS = ROOT / "images" / "bin"


def _python(component: str, *extras: str, programs: tuple[str, ...] = ()) -> Image:
    """Return the image of a component whose process is Python code.

    The program of the component and ``programs`` are on the PATH. All are files of this repository,
    because a program that pip installs names the interpreter of the image in which pip ran.
    """
    on_path = (*programs, f"waltz-{component}")
    return Image(
        component,
        (component, *extras),
        ("python3", "-m", f"waltz_{component}"),
        _PYTHON_ENVIRONMENT,
        files={f"/usr/local/bin/{name}": _PROGRAMS / name for name in on_path},
    )


_SPARK_ENVIRONMENT = (
    "SPARK_HOME=/app/pyspark",
    "PYSPARK_PYTHON=python3",
    "HOME=/tmp",
    "PATH=/app/pyspark/bin:/usr/local/bin:/usr/bin:/bin",
)


IMAGES = (
    # The server's image also contains the command line, which client pods run.
    _python("server", "cli", programs=("waltz",)),
    _python("storage"),
    _python("operator"),
    Image("zookeeper", (), ("/opt/zookeeper/start",), java=True),
    Image(
        "spark",
        ("spark",),
        ("/opt/spark/start",),
        (*_PYTHON_ENVIRONMENT, *_SPARK_ENVIRONMENT),
        java=True,
        files={"/opt/spark/start": _SPARK_FILES / "start", "/etc/passwd": _SPARK_FILES / "passwd"},
    ),
)


def version() -> str:
    """Return the version of all images."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())
    return str(project["project"]["version"])
