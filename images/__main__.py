"""Build images by ``python -m images [COMPONENT ...]``. Touches the disk, starts programs.

Without COMPONENT the program builds all images. It uses `images.layers` if the environment
variable WALTZ_IMAGE_TOOL is set, otherwise Docker. The archives of the images are written to
``build/images``.
"""

from __future__ import annotations

import os
import sys
import time
from pathlib import Path

from images import docker
from images.definitions import IMAGES, ROOT
from images.layers import LayerBuilder, has_this_python

_FOLDER = ROOT / "build" / "images"


def main() -> None:
    """Build the images and print the paths of their archives."""
    known = [image.component for image in IMAGES]
    if unknown := set(sys.argv[1:]) - set(known):
        sys.exit(f"there is no image {', '.join(sorted(unknown))}: choose from {', '.join(known)}")
    _FOLDER.mkdir(parents=True, exist_ok=True)
    builder = _builder()
    if builder is None and not docker.is_available():
        sys.exit(
            "Docker does not answer, no image is built: start Docker, or set WALTZ_IMAGE_TOOL, "
            "WALTZ_IMAGE_PYTHON_BASE and WALTZ_IMAGE_JAVA_BASE to build without Docker"
        )
    wanted = sys.argv[1:] or known
    images = [image for image in IMAGES if image.component in wanted]
    if builder is None:
        archives = docker.build(images, _FOLDER, _arguments)
    else:
        archives = builder.build(images)
    # Both kinds of ``archives`` are generators: this loop builds one image after the other.
    begun = time.monotonic()
    for image, archive in zip(images, archives, strict=True):
        size = archive.stat().st_size >> 20
        print(f"{image.tag:26} {archive}  {size} MB, after {time.monotonic() - begun:.0f} s")


def _builder() -> LayerBuilder | None:
    tool = os.environ.get("WALTZ_IMAGE_TOOL")
    if tool is None:
        return None
    variables = ("WALTZ_IMAGE_PYTHON_BASE", "WALTZ_IMAGE_JAVA_BASE")
    if missing := [name for name in variables if name not in os.environ]:
        sys.exit(f"WALTZ_IMAGE_TOOL needs {' and '.join(missing)}: the path of a base image each")
    python, java = (Path(os.environ[name]) for name in variables)
    for base in (python, java):
        if not has_this_python(base):
            sys.exit(
                f"{base} has another version of Python than {sys.executable}, no image is built: "
                "run this program with the version that the base has"
            )
    return LayerBuilder(tool, python, java, _FOLDER)


def _arguments(component: str) -> dict[str, str]:
    """Return the build arguments of a component's Dockerfile, from environment variables."""
    python, java = (os.environ.get(f"WALTZ_IMAGE_{name}_BASE") for name in ("PYTHON", "JAVA"))
    bases = {"BASE": java if component in ("zookeeper", "spark") else python}
    if component == "zookeeper":
        # An image with Python installs the package that contains ZooKeeper's jars.
        bases["JARS"] = python
    return {name: base for name, base in bases.items() if base is not None}


if __name__ == "__main__":
    main()
