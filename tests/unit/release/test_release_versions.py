"""Test that all files name the same version."""

from __future__ import annotations

from pathlib import Path

from release.versions import differing_versions, is_in_changelog, named_versions


def test_versions_of_the_repository_agree() -> None:
    assert differing_versions() == []
    places = [place for place, _ in named_versions()]
    assert any(place.startswith("crds/") for place in places)
    assert any(place.startswith("charts/waltz/values.yaml") for place in places)


def test_versions_that_differ_are_named(tmp_path: Path) -> None:
    (tmp_path / "charts/waltz").mkdir(parents=True)
    (tmp_path / "pyproject.toml").write_text('[project]\nversion = "1.2.3"\n')
    (tmp_path / "charts/waltz/Chart.yaml").write_text("version: 1.2.3\nappVersion: '1.2'\n")
    (tmp_path / "Dockerfile.server").write_text("# docker build -t waltz-server:1.0.0 .\n")
    (tmp_path / "CHANGELOG.md").write_text("# Changelog\n\n## [1.2.3]\n")
    assert differing_versions(tmp_path) == [
        ("charts/waltz/Chart.yaml, appVersion", "1.2"),
        ("Dockerfile.server:1", "1.0.0"),
    ]
    assert is_in_changelog("1.2.3", tmp_path)
    assert not is_in_changelog("1.2", tmp_path)
