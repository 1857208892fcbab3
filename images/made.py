"""What images there are: their names, what they consist of, what they start. Pure."""

from __future__ import annotations

import tomllib
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

HERE = Path(__file__).parents[1]
_OF_SPARK = HERE / "images" / "spark"


@dataclass(frozen=True, slots=True)
class Image:
    """One image; ``extra`` is the part of the distribution that it has, "" for none.

    ``java``: it has Java, too. ``files`` are further files, by their places in the image.
    """

    component: str
    extra: str
    entrypoint: tuple[str, ...]
    environment: tuple[str, ...] = ()
    java: bool = False
    files: Mapping[str, Path] = field(default_factory=dict)

    @property
    def dockerfile(self) -> Path:
        """What Docker makes it of."""
        return HERE / f"Dockerfile.{self.component}"

    @property
    def tag(self) -> str:
        """What it is called, as the chart and the resources' defaults call it."""
        return f"waltz-{self.component}:{version()}"


_PYTHON = ("PYTHONPATH=/app", "PYTHONDONTWRITEBYTECODE=1", "PYTHONUNBUFFERED=1")


def _python(component: str) -> Image:
    return Image(component, component, ("python3", "-m", f"waltz_{component}"), _PYTHON)


_SPARK = (
    "SPARK_HOME=/app/pyspark",
    "PYSPARK_PYTHON=python3",
    "HOME=/tmp",
    "PATH=/app/pyspark/bin:/usr/local/bin:/usr/bin:/bin",
)


IMAGES = (
    _python("server"),
    _python("storage"),
    _python("operator"),
    Image("zookeeper", "", ("/opt/zookeeper/start",), java=True),
    Image(
        "spark",
        "spark",
        ("/opt/spark/start",),
        (*_PYTHON, *_SPARK),
        java=True,
        files={"/opt/spark/start": _OF_SPARK / "start", "/etc/passwd": _OF_SPARK / "passwd"},
    ),
)


def version() -> str:
    """Return the version that all images bear."""
    project = tomllib.loads((HERE / "pyproject.toml").read_text())
    return str(project["project"]["version"])
