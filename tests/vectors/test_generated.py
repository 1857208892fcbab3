"""The vectors of this project are what its encoders give today."""

from __future__ import annotations

import pytest

from tests.vectors.conftest import OWN
from tests.vectors.generate.files import FILES
from tests.vectors.generate.rendering import render


@pytest.mark.parametrize("name", FILES)
def test_generated_file_is_the_one_in_spec_vectors(name: str) -> None:
    text = render(FILES[name]()) + "\n"
    assert (OWN / name).read_text() == text, "run: python -m tests.vectors.generate"


def test_folder_of_vectors_has_generated_files_only() -> None:
    assert {file.name for file in OWN.iterdir()} == {*FILES, "README.md"}
