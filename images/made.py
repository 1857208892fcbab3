"""What images there are: their names, what they consist of, what they start. Pure."""

from __future__ import annotations

import tomllib
from dataclasses import dataclass
from pathlib import Path

HERE = Path(__file__).parents[1]


@dataclass(frozen=True, slots=True)
class Image:
    """One image; ``extra`` is the part of the distribution that it has, "" for none."""

    component: str
    extra: str
    entrypoint: tuple[str, ...]
    environment: tuple[str, ...] = ()

    @property
    def dockerfile(self) -> Path:
        """What Docker makes it of."""
        return HERE / f"Dockerfile.{self.component}"

    @property
    def tag(self) -> str:
        """What it is called, as the chart and the resources' defaults call it."""
        return f"waltz-{self.component}:{version()}"


def _python(component: str) -> Image:
    environment = ("PYTHONPATH=/app", "PYTHONDONTWRITEBYTECODE=1", "PYTHONUNBUFFERED=1")
    return Image(component, component, ("python3", "-m", f"waltz_{component}"), environment)


IMAGES = (
    _python("server"),
    _python("storage"),
    _python("operator"),
    Image("zookeeper", "", ("/opt/zookeeper/start",)),
)


def version() -> str:
    """Return the version that all images bear."""
    project = tomllib.loads((HERE / "pyproject.toml").read_text())
    return str(project["project"]["version"])
