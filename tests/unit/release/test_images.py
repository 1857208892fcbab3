"""The images that are built without Docker equal those of the Dockerfiles."""

from __future__ import annotations

import json
import marshal
import os
import re
import subprocess
import sys
import tarfile
import tomllib
from importlib.util import cache_from_source, find_spec
from pathlib import Path

import pytest

from images import layers
from images.definitions import IMAGES, ROOT, Image, version
from images.layers import LayerBuilder
from waltz_operator.core.resources.cluster import Images


def last_of(instruction: str, dockerfile: str) -> str:
    """Return the argument of the last such instruction, with continued lines joined."""
    joined = dockerfile.replace("\\\n", " ")
    found: list[str] = re.findall(rf"^{instruction} (.*)$", joined, re.MULTILINE)
    return found[-1]


def by_component(image: Image) -> str:
    return image.component


def test_every_dockerfile_has_an_image_definition() -> None:
    files = {file.suffix.removeprefix(".") for file in ROOT.glob("Dockerfile.*")}
    assert files == {image.component for image in IMAGES}


@pytest.mark.parametrize("image", IMAGES, ids=by_component)
def test_image_has_entry_point_user_and_environment_of_its_dockerfile(image: Image) -> None:
    text = image.dockerfile.read_text()
    assert tuple(json.loads(last_of("ENTRYPOINT", text))) == image.entrypoint
    assert last_of("USER", text) == layers._USER
    if image.environment:
        settings = re.sub(r"\$\{PATH:-(.*?)\}", r"\1", last_of("ENV", text))
        assert sorted(settings.split()) == sorted(image.environment)
    for place, file in image.files.items():
        assert f"{file.relative_to(ROOT)} {place}" in text
    if image.extras:
        assert f"'.[{','.join(image.extras)}]'" in text


def test_spark_image_keeps_the_path_of_its_base() -> None:
    """Bases have Java at places such as /opt/java/openjdk/bin."""
    settings = last_of("ENV", (ROOT / "Dockerfile.spark").read_text()).split()
    [path] = (each for each in settings if each.startswith("PATH="))
    # A shell expands variables as Docker does, but sets PATH if the environment has none.
    for base, rest in (
        ("PATH=/opt/java/bin:/bin", "/opt/java/bin:/bin"),
        ("unset PATH", "/usr/local/bin:/usr/bin:/bin"),
    ):
        command = ["/bin/sh", "-c", f"{base}; echo {path}"]
        ran = subprocess.run(command, capture_output=True, text=True, check=True)
        assert ran.stdout == f"PATH=/app/pyspark/bin:{rest}\n"


@pytest.mark.parametrize("variable", ["JAVA_HOME", "PATH"])
def test_spark_executor_runs_the_java_of_java_home_or_path(tmp_path: Path, variable: str) -> None:
    java = tmp_path / "bin" / "java"
    java.parent.mkdir()
    java.write_text('#!/bin/sh\necho "this java runs $*"\n')
    java.chmod(0o755)
    start = ROOT / "images" / "spark" / "start"
    variables = dict.fromkeys(re.findall(r"\$(SPARK_\w+)", start.read_text()), "1")
    places = {"JAVA_HOME": str(tmp_path), "PATH": f"{tmp_path}/bin"}
    ran = subprocess.run(
        ["/bin/bash", start, "executor"],
        env=variables | {"PATH": "/nowhere"} | {variable: places[variable]},
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    )
    assert ran.stdout.startswith("this java runs -Xms1 -Xmx1 -cp "), ran.stderr


def test_default_images_of_a_cluster_resource_are_images_of_this_build() -> None:
    defaults = Images()
    known = {image.tag for image in IMAGES}
    assert {defaults.server, defaults.storage, defaults.zookeeper} <= known
    assert defaults.server.endswith(f":{version()}")


@pytest.mark.parametrize(
    ("arguments", "variables", "problem"),
    [
        (["storge"], {}, "there is no image storge: choose from"),
        (["storage"], {"WALTZ_IMAGE_TOOL": "x"}, "WALTZ_IMAGE_TOOL needs WALTZ_IMAGE_PYTHON_BASE"),
    ],
)
def test_build_with_wrong_arguments_says_what_is_wrong(
    arguments: list[str], variables: dict[str, str], problem: str
) -> None:
    kept = {name: each for name, each in os.environ.items() if not name.startswith("WALTZ_IMAGE")}
    ended = subprocess.run(
        [sys.executable, "-m", "images", *arguments],
        cwd=ROOT,
        env=kept | variables,
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    )
    assert ended.returncode == 1
    assert problem in ended.stderr
    assert "Traceback" not in ended.stderr


def test_layers_are_joined_by_the_configured_tool(tmp_path: Path) -> None:
    tool = tmp_path / "tool"
    tool.write_text(f'#!/bin/sh\necho "$@" > {tmp_path}/arguments; : > "$2"\n')
    tool.chmod(0o755)
    builder = LayerBuilder(str(tool), tmp_path / "python.tar", tmp_path / "java.tar", tmp_path)
    image = next(each for each in IMAGES if each.component == "zookeeper")
    archive = builder._join(image, [builder.java_base], {tmp_path / "home": "/opt/zookeeper"})
    assert archive.exists()
    arguments = (tmp_path / "arguments").read_text().split()
    assert arguments[arguments.index("-t") + 1] == f"docker.io/library/{image.tag}"
    assert f"{tmp_path}/home=/opt/zookeeper" in arguments
    assert arguments[-1] == "1000:1000"


def test_library_layer_has_compiled_modules_that_name_the_files_of_the_image(
    tmp_path: Path,
) -> None:
    module = f"usr/lib/python{sys.version_info.major}.{sys.version_info.minor}/json/tool.py"
    source = tmp_path / "tool.py"
    source.write_text("VALUE = 1\n")
    base = tmp_path / "base.tar"
    with tarfile.open(base, "w") as archive:
        archive.add(source, f"./{module}")
        archive.add(source, "./usr/lib/python3/dist-packages/other.py")
    builder = LayerBuilder("tool", base, base, tmp_path)
    layer = builder._library_layer(base)
    with tarfile.open(layer) as archive:
        [compiled] = archive
        file = archive.extractfile(compiled)
        assert file is not None
        content = file.read()
    assert compiled.name == cache_from_source(module)
    assert content[4:8] == b"\1\0\0\0", "the source is not checked at each start"
    code = marshal.loads(content[16:])
    assert code.co_filename == f"/{module}"
    assert builder._library_layer(base) == layer


@pytest.mark.parametrize(
    ("component", "programs"),
    [
        ("server", {"waltz", "waltz-server"}),
        ("storage", {"waltz-storage"}),
        ("operator", {"waltz-operator"}),
    ],
)
def test_programs_of_an_image_are_on_its_path(component: str, programs: set[str]) -> None:
    image = next(each for each in IMAGES if each.component == component)
    assert {f"/usr/local/bin/{name}" for name in programs} <= image.files.keys()
    assert not any(each.startswith("PATH=") for each in image.environment)


@pytest.mark.parametrize("file", sorted((ROOT / "images" / "bin").iterdir()), ids=lambda f: f.name)
def test_program_of_an_image_runs_the_entry_point_of_the_distribution(file: Path) -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    module = project["scripts"][file.name].partition(":")[0].removesuffix(".__main__")
    assert file.read_text() == f'#!/bin/sh\nexec python3 -m {module} "$@"\n'
    assert file.stat().st_mode & 0o111 == 0o111
    assert find_spec(f"{module}.__main__") is not None


def test_dockerignore_excludes_no_file_of_the_images() -> None:
    shown = [
        ROOT / line.removeprefix("!")
        for line in (ROOT / ".dockerignore").read_text().split()
        if line.startswith("!")
    ]
    for image in IMAGES:
        for file in image.files.values():
            assert any(file.is_relative_to(place) for place in shown), file
