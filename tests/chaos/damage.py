"""Damage the files of a stopped storage, and copy its volumes while it runs. Touches files."""

from __future__ import annotations

import shutil
from pathlib import Path
from random import Random


def files_of(volume: Path) -> list[Path]:
    """Return all files of a volume, in a fixed order."""
    return sorted(path for path in volume.rglob("*") if path.is_file())


def flip_bits(volumes: tuple[Path, ...], random: Random) -> str:
    """Flip one bit of one file of each kind in turn: first the kind is drawn, then the file."""
    files = [path for volume in volumes for path in files_of(volume) if path.stat().st_size]
    kinds = sorted({_kind(path) for path in files})
    if not kinds:
        return "no file"
    kind = random.choice(kinds)
    path = random.choice([one for one in files if _kind(one) == kind])
    content = bytearray(path.read_bytes())
    offset = random.randrange(len(content))
    content[offset] ^= 1 << random.randrange(8)
    path.write_bytes(content)
    return f"{path.name} at byte {offset}"


def _kind(path: Path) -> str:
    return path.suffix if path.suffix in (".seg", ".idx") else path.name


def remove_partition(data: Path, random: Random) -> str:
    """Remove the directory of one partition."""
    folders = sorted(path for path in data.iterdir() if path.is_dir() and path.name.isdigit())
    if not folders:
        return "no partition"
    chosen = random.choice(folders)
    shutil.rmtree(chosen)
    return f"partition {chosen.name}"


def copy_volume(volume: Path, copy: Path) -> None:
    """Copy a volume while its storage runs: a file may be copied in the middle of a write."""
    shutil.rmtree(copy, ignore_errors=True)
    shutil.copytree(volume, copy)


def restore_volume(volume: Path, copy: Path) -> None:
    """Replace the content of a volume by a copy."""
    empty(volume)
    for path in copy.iterdir():
        if path.is_dir():
            shutil.copytree(path, volume / path.name)
        else:
            shutil.copy2(path, volume / path.name)


def empty(volume: Path) -> None:
    """Remove everything in a volume."""
    for path in volume.iterdir():
        if path.is_dir():
            shutil.rmtree(path)
        else:
            path.unlink()
