"""Build the images with Docker. Starts ``docker``."""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path

from images.definitions import ROOT, Image


def is_available() -> bool:
    """Whether Docker is installed and running."""
    if shutil.which("docker") is None:
        return False
    return subprocess.run(["docker", "info"], capture_output=True, check=False).returncode == 0


def build(
    images: Iterable[Image], folder: Path, arguments: Callable[[str], Mapping[str, str]]
) -> Iterator[Path]:
    """Build images, and save each one as an archive in ``folder``; yield the archives.

    ``arguments`` returns the build arguments of a component's Dockerfile.
    """
    for image in images:
        command = ["docker", "build", "--file", str(image.dockerfile), "--tag", image.tag]
        for name, value in arguments(image.component).items():
            command += ["--build-arg", f"{name}={value}"]
        subprocess.run([*command, str(ROOT)], check=True)
        archive = folder / f"waltz-{image.component}.tar"
        subprocess.run(["docker", "save", "--output", str(archive), image.tag], check=True)
        yield archive
