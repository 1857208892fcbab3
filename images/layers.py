"""Build the images without Docker, from archives of root file systems. Touches disk and network.

The program that the environment variable WALTZ_IMAGE_TOOL names joins layers into an image in the
format of ``docker save``. It is called like this::

    TOOL -o IMAGE -t NAME:TAG -l LAYER --add SOURCE=PATH --entrypoint JSON -e NAME=VALUE -u USER

PATH is the place of the file or folder SOURCE in the image.

Dependencies are a separate layer, which is built again only when the dependencies or their locked
versions change.
"""

from __future__ import annotations

import hashlib
import json
import shutil
import subprocess
import sys
import tarfile
import tempfile
import tomllib
import zipfile
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from functools import partial
from importlib.util import find_spec
from pathlib import Path

from images.definitions import ROOT, Image

_USER = "1000:1000"


@dataclass(frozen=True, slots=True)
class LayerBuilder:
    """Builds images by the program ``tool``, and writes them to ``folder``.

    The bases are archives of root file systems. ``python_base`` has the same version of Python as
    this process. ``java_base`` has this version of Python, and Java.
    """

    tool: str
    python_base: Path
    java_base: Path
    folder: Path

    def build(self, images: Iterable[Image]) -> Iterator[Path]:
        """Build images one after the other; yield the archive of each image."""
        with tempfile.TemporaryDirectory(dir=self.folder) as scratch:
            code = _make_code_folder(Path(scratch))
            zookeeper = _make_zookeeper_folder(Path(scratch))
            for image in images:
                base = self.java_base if image.java else self.python_base
                if image.extras:
                    added = {code: "/app"} | {file: path for path, file in image.files.items()}
                    layers = [base, self._library_layer(base), self._dependency_layer(image.extras)]
                    yield self._join(image, layers, added)
                else:
                    yield self._join(image, [base], {zookeeper: "/opt/zookeeper"})

    def _join(self, image: Image, layers: list[Path], added: dict[Path, str]) -> Path:
        """Join layers into an image; ``added`` are further files, with their paths in the image."""
        archive = self.folder / f"waltz-{image.component}.tar"
        command = [*self.tool.split(), "-o", str(archive), "-t", f"docker.io/library/{image.tag}"]
        for layer in layers:
            command += ["-l", str(layer)]
        for source, path in added.items():
            command += ["--add", f"{source}={path}"]
        for setting in image.environment:
            command += ["-e", setting]
        command += ["--entrypoint", json.dumps(image.entrypoint), "-u", _USER]
        subprocess.run(command, check=True)
        return archive

    def _library_layer(self, base: Path) -> Path:
        """Return a layer with the compiled modules of Python's library in ``base``.

        Bases have few of them, and each start of a process would compile the others anew.
        """
        stat = base.stat()
        inputs = json.dumps([sys.version_info[:2], str(base), stat.st_size, stat.st_mtime_ns])
        return self._layer("library", inputs, partial(_make_library, base))

    def _dependency_layer(self, extras: tuple[str, ...]) -> Path:
        """Return a layer with the dependencies of the extras."""
        project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
        # All extras, because an extra may include others.
        packages = [extras, project["dependencies"], project["optional-dependencies"]]
        wanted = [sys.version_info[:2], *packages]  # Compiled packages fit one version of Python.
        inputs = json.dumps(wanted) + (ROOT / "requirements.lock").read_text()
        return self._layer("dependencies", inputs, partial(_make_dependencies, extras))

    def _layer(self, kind: str, inputs: str, make: Callable[[Path], dict[Path, str]]) -> Path:
        """Return the layer that ``inputs`` determine; build it unless it exists.

        ``make`` makes its files and folders below a scratch folder, and returns them with their
        paths in the image.
        """
        digest = hashlib.sha256(inputs.encode()).hexdigest()[:12]
        layer = self.folder / f"{kind}-{digest}.layer"
        if layer.exists():
            return layer
        with tempfile.TemporaryDirectory(dir=self.folder) as scratch:
            added = make(Path(scratch))
            part = layer.with_suffix(".part")
            with tarfile.open(part, "w") as archive:
                for source, path in added.items():
                    archive.add(source, path, filter=_owned_by_root)
            part.rename(layer)
        return layer


def has_this_python(base: Path) -> bool:
    """Whether a root file system has this process's version of Python.

    The dependencies are installed by this process, and compiled ones work only with that version.
    """
    wanted = f"usr/bin/python{sys.version_info.major}.{sys.version_info.minor}"
    with tarfile.open(base) as archive:
        return any(member.name.removeprefix("./") == wanted for member in archive)


def _make_library(base: Path, scratch: Path) -> dict[Path, str]:
    """Compile the modules of Python's library in ``base``; return the compiled files."""
    _extract_library(base, scratch)
    # The paths in tracebacks are those in the image.
    _compile(scratch, "-s", str(scratch), "-p", "/")
    return {path: str(path.relative_to(scratch)) for path in sorted(scratch.rglob("*.pyc"))}


def _make_dependencies(extras: tuple[str, ...], scratch: Path) -> dict[Path, str]:
    """Install the dependencies of the extras, and compile them; return their folder."""
    site = scratch / "site"
    wanted = f".[{','.join(extras)}]"
    _pip("install", "--target", str(site), "-c", "requirements.lock", wanted)
    # pip has installed the distribution itself, too; `_make_code_folder` provides its code.
    for own in (*site.glob("waltz*"), site / "bin"):
        shutil.rmtree(own, ignore_errors=True)
    _compile(site)
    return {site: "app"}


def _extract_library(base: Path, folder: Path) -> None:
    """Extract the modules of Python's library from ``base`` to the same places in ``folder``."""
    library = f"usr/lib/python{sys.version_info.major}.{sys.version_info.minor}/"
    with tarfile.open(base) as archive:
        for member in archive:
            name = member.name.removeprefix("./")
            if member.isfile() and name.startswith(library) and name.endswith(".py"):
                source = archive.extractfile(member)
                assert source is not None, f"{name} is a file"
                (folder / name).parent.mkdir(parents=True, exist_ok=True)
                (folder / name).write_bytes(source.read())


def _make_code_folder(scratch: Path) -> Path:
    """Make a folder with the Python code of the distribution, below ``scratch``."""
    _pip("wheel", "--no-deps", "--wheel-dir", str(scratch), ".")
    [wheel] = scratch.glob("waltz_log-*.whl")
    code = scratch / "code"
    with zipfile.ZipFile(wheel) as archive:
        archive.extractall(code)
    _compile(code)
    return code


def _make_zookeeper_folder(scratch: Path) -> Path:
    """Make a folder with ZooKeeper and the scripts that start and probe it, below ``scratch``."""
    home = scratch / "zookeeper"
    pyspark = find_spec("pyspark")
    assert pyspark is not None
    assert pyspark.origin is not None
    jars = Path(pyspark.origin).parent / "jars"
    subprocess.run([ROOT / "operator/zookeeper/jars", jars, home / "jars"], check=True)
    for program in ("start", "ready"):
        shutil.copy(ROOT / "operator/zookeeper" / program, home / program)
        (home / program).chmod(0o755)
    return home


def _pip(verb: str, *arguments: str) -> None:
    options = ["--quiet", "--disable-pip-version-check", "--no-input"]
    subprocess.run([sys.executable, "-m", "pip", verb, *options, *arguments], check=True, cwd=ROOT)


def _compile(folder: Path, *options: str) -> None:
    """Compile all modules at build time, because a pod's root file system is read-only."""
    command = ["-m", "compileall", "-q", "--invalidation-mode", "unchecked-hash", *options]
    subprocess.run([sys.executable, *command, str(folder)], check=True)


def _owned_by_root(member: tarfile.TarInfo) -> tarfile.TarInfo:
    """Return ``member`` as a file of root without a time, so that equal layers have equal bytes."""
    member.uid = member.gid = 0
    member.uname = member.gname = "root"
    member.mtime = 0
    return member
