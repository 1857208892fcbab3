"""What `make images` makes without Docker is what the Dockerfiles say."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from images import layers
from images.layers import Workshop
from images.made import HERE, IMAGES, Image, version
from waltz_operator.core.resources.cluster import Images


def last_of(instruction: str, dockerfile: str) -> str:
    """Return what an instruction says last, without the ends of its lines."""
    joined = dockerfile.replace("\\\n", " ")
    found: list[str] = re.findall(rf"^{instruction} (.*)$", joined, re.MULTILINE)
    return found[-1]


def by_component(image: Image) -> str:
    return image.component


def test_every_dockerfile_is_an_image() -> None:
    files = {file.suffix.removeprefix(".") for file in HERE.glob("Dockerfile.*")}
    assert files == {image.component for image in IMAGES}


@pytest.mark.parametrize("image", IMAGES, ids=by_component)
def test_it_starts_the_same_as_the_same_user_with_the_same_settings(image: Image) -> None:
    text = image.dockerfile.read_text()
    assert tuple(json.loads(last_of("ENTRYPOINT", text))) == image.entrypoint
    assert last_of("USER", text) == layers._USER
    if image.environment:
        assert sorted(last_of("ENV", text).split()) == sorted(image.environment)
    for place, file in image.files.items():
        assert f"{file.relative_to(HERE)} {place}" in text
    if image.extra:
        assert f"'.[{image.extra}]'" in text


def test_resources_name_them_if_nothing_else_is_said() -> None:
    defaults = Images()
    known = {image.tag for image in IMAGES}
    assert {defaults.server, defaults.storage, defaults.zookeeper} <= known
    assert defaults.server.endswith(f":{version()}")


def test_layers_are_joined_by_the_tool_that_is_given(tmp_path: Path) -> None:
    tool = tmp_path / "tool"
    tool.write_text(f'#!/bin/sh\necho "$@" > {tmp_path}/said; : > "$2"\n')
    tool.chmod(0o755)
    workshop = Workshop(str(tool), tmp_path / "python.tar", tmp_path / "java.tar", tmp_path)
    image = next(each for each in IMAGES if each.component == "zookeeper")
    archive = workshop._join(image, [workshop.java_base], {tmp_path / "home": "/opt/zookeeper"})
    assert archive.exists()
    said = (tmp_path / "said").read_text().split()
    assert said[said.index("-t") + 1] == f"docker.io/library/{image.tag}"
    assert f"{tmp_path}/home=/opt/zookeeper" in said
    assert said[-1] == "1000:1000"
