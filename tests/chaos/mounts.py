"""Small disks that can be filled and stalled: files with ext4, mounted by root. Touches mounts.

Without the right to mount, `Mounts.names` stays empty, and these two faults are left out. Whatever
was mounted is unmounted by `close`.
"""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

DISK_MEGABYTES = 192
_FILLER = "filler"
_TOOLS = ("mkfs.ext4", "mount", "umount", "fsfreeze")


class Mounts:
    """The disks of some storages, below ``directory``."""

    def __init__(self, directory: Path, wanted: int) -> None:
        self._directory = directory
        self._wanted = wanted
        self._paths: dict[str, Path] = {}
        self.reason = "" if self._may_mount() else "no right to mount, or no ext4 tools"

    @property
    def names(self) -> tuple[str, ...]:
        """The storages that have a disk of their own."""
        return tuple(self._paths)

    def mount(self, name: str, path: Path) -> None:
        """Mount a new disk for a storage, as long as more are wanted."""
        if self.reason or len(self._paths) >= self._wanted:
            return
        image = self._directory / f"{name.replace('/', '-')}.img"
        image.parent.mkdir(parents=True, exist_ok=True)
        with image.open("wb") as file:
            file.truncate(DISK_MEGABYTES << 20)
        try:
            _run("mkfs.ext4", "-q", "-F", str(image))
            _run("mount", "-o", "loop", str(image), str(path))
        except (OSError, subprocess.CalledProcessError) as problem:
            self.reason = f"cannot mount a disk: {problem}"
            return
        self._paths[name] = path

    def fill(self, name: str) -> None:
        """Use all space of a disk."""
        with (self._paths[name] / _FILLER).open("wb", buffering=0) as file:
            try:
                while True:
                    file.write(bytes(1 << 20))
            except OSError:
                return  # the disk is full

    def free(self, name: str) -> None:
        (self._paths[name] / _FILLER).unlink(missing_ok=True)

    def stall(self, name: str) -> None:
        """Let every write to a disk wait until `resume`."""
        _run("fsfreeze", "--freeze", str(self._paths[name]))

    def resume(self, name: str) -> None:
        _run("fsfreeze", "--unfreeze", str(self._paths[name]))

    def close(self) -> None:
        for path in self._paths.values():
            subprocess.run(["fsfreeze", "--unfreeze", path], check=False, capture_output=True)
            subprocess.run(["umount", "--lazy", path], check=False, capture_output=True)
        self._paths.clear()

    @staticmethod
    def _may_mount() -> bool:
        return os.geteuid() == 0 and all(shutil.which(tool) for tool in _TOOLS)


def _run(*command: str) -> None:
    subprocess.run(command, check=True, capture_output=True)
