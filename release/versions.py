"""Find every place that names the version; all must name the same version. Reads files."""

from __future__ import annotations

import re
import tomllib
from collections.abc import Iterator
from pathlib import Path

import yaml

ROOT = Path(__file__).parents[1]

_IMAGE_TAG = re.compile(r"\bwaltz-(?:server|storage|operator|zookeeper|spark):([\w.+-]*\w)")
"""The name of an image with its tag; the group is the tag, which is a version."""

_WITH_IMAGES = (
    "Dockerfile.*",
    "charts/waltz/values.yaml",
    "charts/waltz/README.md",
    "charts/waltz/files/crds/*.yaml",
    "crds/*.yaml",
    "examples/kubernetes/**/*.yaml",
)
"""Patterns of the files that name images with their tags."""


def project_version(root: Path = ROOT) -> str:
    """Return the version of the distribution, which all other places must name."""
    project = tomllib.loads((root / "pyproject.toml").read_text())
    return str(project["project"]["version"])


def project_extras(root: Path = ROOT) -> set[str]:
    """Return the names of the distribution's extras."""
    project = tomllib.loads((root / "pyproject.toml").read_text())
    return set(project["project"]["optional-dependencies"])


def named_versions(root: Path = ROOT) -> Iterator[tuple[str, str]]:
    """Yield each place that names a version, and the version that it names."""
    yield "pyproject.toml", project_version(root)
    chart = yaml.safe_load((root / "charts/waltz/Chart.yaml").read_text())
    yield "charts/waltz/Chart.yaml, version", str(chart["version"])
    yield "charts/waltz/Chart.yaml, appVersion", str(chart["appVersion"])
    for pattern in _WITH_IMAGES:
        for path in sorted(root.glob(pattern)):
            for number, line in enumerate(path.read_text().splitlines(), 1):
                for tag in _IMAGE_TAG.findall(line):
                    yield f"{path.relative_to(root)}:{number}", tag


def differing_versions(root: Path = ROOT) -> list[tuple[str, str]]:
    """Return the places that name another version than pyproject.toml does."""
    wanted = project_version(root)
    return [(place, version) for place, version in named_versions(root) if version != wanted]


def is_in_changelog(version: str, root: Path = ROOT) -> bool:
    """Whether the changelog has a section for ``version``."""
    return f"\n## [{version}]" in (root / "CHANGELOG.md").read_text()
