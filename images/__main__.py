"""``python -m images [COMPONENT ...]``: makes images, with Docker or of layers.

Without components, all of them. Their archives are put into ``build/images``.
"""

from __future__ import annotations

import os
import sys
import time
from pathlib import Path

from images import docker
from images.layers import Workshop, has_this_python
from images.made import HERE, IMAGES

_FOLDER = HERE / "build" / "images"


def main() -> None:
    """Make them, and say where they are."""
    _FOLDER.mkdir(parents=True, exist_ok=True)
    workshop = _workshop()
    if workshop is None and not docker.answers():
        sys.exit("no Docker answers: start it, or set WALTZ_IMAGE_TOOL and its bases")
    images = [each for each in IMAGES if each.component in (sys.argv[1:] or each.component)]
    if workshop is None:
        archives = docker.build(images, _FOLDER, _arguments)
    else:
        archives = workshop.build(images)
    begun = time.monotonic()
    for image, archive in zip(images, archives, strict=True):
        size = archive.stat().st_size >> 20
        print(f"{image.tag:26} {archive}  {size} MB, after {time.monotonic() - begun:.0f} s")


def _workshop() -> Workshop | None:
    tool = os.environ.get("WALTZ_IMAGE_TOOL")
    if tool is None:
        return None
    python, java = (Path(os.environ[f"WALTZ_IMAGE_{name}_BASE"]) for name in ("PYTHON", "JAVA"))
    for base in (python, java):
        if not has_this_python(base):
            sys.exit(f"{base} has another Python than {sys.executable}: run this with that one")
    return Workshop(tool, python, java, _FOLDER)


def _arguments(component: str) -> dict[str, str]:
    """Return the Dockerfile's arguments that the environment gives."""
    python, java = (os.environ.get(f"WALTZ_IMAGE_{name}_BASE") for name in ("PYTHON", "JAVA"))
    wanted = {"BASE": java if component in ("zookeeper", "spark") else python}
    if component == "zookeeper":
        wanted["JARS"] = python
    return {name: value for name, value in wanted.items() if value is not None}


if __name__ == "__main__":
    main()
