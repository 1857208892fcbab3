"""Profiles: names for clusters, in a file of the user. Touches this file and the environment.

The file is ``waltz/profiles.json`` in the directory ``XDG_CONFIG_HOME``, by default ``~/.config``.
"""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any, Self

PROFILE_VARIABLE = "WALTZ_PROFILE"
"""The variable that names a profile.

`find_profile` does not read it: its callers pass the name."""

AS_DECLARED = "as declared"
"""The ``tls`` of a profile that follows what the servers have declared in ZooKeeper."""


class BadProfile(ValueError):
    """A profile does not exist, or the file of profiles cannot be used. The text has the reason."""


@dataclass(frozen=True, slots=True)
class Profile:
    """A cluster: the addresses of its ZooKeeper, its root znode, its TLS, and the way to it.

    ``tls`` is ``on``, ``off`` or the absolute path of a file, as in ``WALTZ_TLS``; or
    `AS_DECLARED`. ``access`` is ``inside`` or ``outside``, as in ``WALTZ_ACCESS``.
    """

    zookeeper: str
    root: str
    tls: str
    access: str = "inside"


@dataclass(frozen=True, slots=True)
class Profiles:
    """All profiles of a user by name, and the name of the one in use, None if none is.

    `find_profile` returns the profile in use if its caller names no profile.
    """

    profiles: Mapping[str, Profile] = field(default_factory=dict)
    used: str | None = None

    def add(self, name: str, profile: Profile) -> Self:
        """Return the profiles with ``profile`` as ``name``, which may exist already."""
        return replace(self, profiles={**self.profiles, name: profile})

    def use(self, name: str | None) -> Self:
        """Return the profiles with ``name`` in use (None: none). Raises BadProfile."""
        if name is not None:
            self.named(name)
        return replace(self, used=name)

    def remove(self, name: str) -> Self:
        """Return the profiles without ``name``. If it was in use, none is in use then.

        Raises BadProfile if there is no such profile.
        """
        self.named(name)
        others = {other: profile for other, profile in self.profiles.items() if other != name}
        return replace(self, profiles=others, used=None if name == self.used else self.used)

    def named(self, name: str) -> Profile:
        """Return the profile ``name``. Raises BadProfile if there is none."""
        if name not in self.profiles:
            known = ", ".join(sorted(self.profiles)) or "none"
            raise BadProfile(
                f"there is no profile {name!r}; the profiles are: {known}; add one with: "
                f"waltz profile add {name} --zookeeper HOST:PORT"
            )
        return self.profiles[name]


def profiles_file(environment: Mapping[str, str] = os.environ) -> Path:
    """Return the path of the user's file of profiles, which may not exist."""
    configured = environment.get("XDG_CONFIG_HOME")
    # The specification of XDG_CONFIG_HOME says that relative paths are invalid and are ignored.
    if configured and Path(configured).is_absolute():
        return Path(configured) / "waltz" / "profiles.json"
    return Path.home() / ".config" / "waltz" / "profiles.json"


def read_profiles(path: Path) -> Profiles:
    """Return the profiles in the file, none if there is no file. Raises BadProfile."""
    try:
        return _decode(json.loads(path.read_text()))
    except FileNotFoundError:
        return Profiles()
    except OSError as problem:
        raise BadProfile(f"cannot read the profiles in {path}: {problem.strerror}") from problem
    except (AttributeError, KeyError, RecursionError, TypeError, ValueError) as problem:
        raise BadProfile(
            f"{path} is not a file of profiles: correct or remove it, and add the profiles again "
            "with: waltz profile add"
        ) from problem


def write_profiles(path: Path, profiles: Profiles) -> None:
    """Write ``profiles`` into the file at ``path``. Raises BadProfile.

    A rename replaces the whole file at once, so that a reader never sees a part of the text. The
    new file first has a name with the id of this process: another process may write at the same
    time.
    """
    content: dict[str, Any] = {
        "used": profiles.used,
        "profiles": {name: asdict(profile) for name, profile in sorted(profiles.profiles.items())},
    }
    temporary = path.with_name(f"{path.name}.{os.getpid()}")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        temporary.write_text(json.dumps(content, indent=2) + "\n")
        temporary.replace(path)
    except OSError as problem:
        raise BadProfile(f"cannot write the profiles to {path}: {problem.strerror}") from problem


def find_profile(name: str | None, environment: Mapping[str, str] = os.environ) -> Profile | None:
    """Return the profile ``name``; if that is None or "", the profile in use, or None.

    Raises BadProfile.
    """
    profiles = read_profiles(profiles_file(environment))
    chosen = name or profiles.used
    return None if chosen is None else profiles.named(chosen)


def _decode(value: Any) -> Profiles:
    """Return the profiles in the JSON of the file.

    If the profile in use is not among them, no profile is in use.
    """
    profiles = {
        str(name): Profile(
            str(fields["zookeeper"]),
            str(fields["root"]),
            str(fields["tls"]),
            # The versions before this field wrote profiles without it.
            str(fields.get("access", "inside")),
        )
        for name, fields in value["profiles"].items()
    }
    used = value["used"]
    return Profiles(profiles, used if used in profiles else None)
