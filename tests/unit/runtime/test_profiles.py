"""The file of profiles: where it is, what it may have, and that half a file is never read."""

from __future__ import annotations

from pathlib import Path

import pytest

from waltz.runtime.profiles import (
    BadProfile,
    Profile,
    Profiles,
    find_profile,
    profiles_file,
    read_profiles,
    write_profiles,
)

STAGING = Profile("zk:1", "/waltz", "off")


def test_profiles_are_read_as_they_were_written(tmp_path: Path) -> None:
    written = Profiles().add("staging", STAGING).add("b", Profile("z", "/b", "on")).use("b")
    write_profiles(tmp_path / "new" / "profiles.json", written)
    assert read_profiles(tmp_path / "new" / "profiles.json") == written
    assert [each.name for each in (tmp_path / "new").iterdir()] == ["profiles.json"]


def test_user_without_a_file_has_no_profiles(tmp_path: Path) -> None:
    assert read_profiles(tmp_path / "none.json") == Profiles()
    assert find_profile(None, {"XDG_CONFIG_HOME": str(tmp_path)}) is None


def test_directory_of_configuration_is_used_if_it_is_absolute(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HOME", "/home/me")
    assert profiles_file({"XDG_CONFIG_HOME": str(tmp_path)}) == tmp_path / "waltz/profiles.json"
    for variables in ({}, {"XDG_CONFIG_HOME": "relative"}):
        assert profiles_file(variables) == Path("/home/me/.config/waltz/profiles.json")


@pytest.mark.parametrize(
    "text", ["", "[]", "{}", '{"used": null, "profiles": {"a": 1}}', "[" * 9999]
)
def test_malformed_file_of_profiles_is_named(tmp_path: Path, text: str) -> None:
    path = tmp_path / "profiles.json"
    path.write_text(text)
    with pytest.raises(BadProfile, match=r"profiles\.json is not a file of profiles: correct"):
        read_profiles(path)


def test_unknown_profile_cannot_be_used() -> None:
    with pytest.raises(BadProfile, match="no profile 'x'; the profiles are: none"):
        Profiles().use("x")
