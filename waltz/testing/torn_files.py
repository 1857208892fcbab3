"""The content that a file may have after a loss of power, if its last changes were not flushed.

A *version* of a file is its content after one of these changes; version 0 is the flushed content.
Touches nothing: the randomness is an argument.
"""

from __future__ import annotations

from random import Random

SECTOR_BYTES = 512

_OLD_BYTES_RATE = 0.2
"""How often a sector whose write was lost has older bytes of the disk in place of zeros.

This concerns only a sector that the file did not have before the write.
"""


def torn_content(versions: list[bytes], random: Random) -> bytes:
    """Return a mixture of the ``versions`` of a file, oldest first."""
    outcome = random.choice(("lost", "kept", "mixed", "mixed"))  # Mixed is twice as likely.
    if outcome == "lost" or len(versions) == 1:
        return versions[0]
    if outcome == "kept":
        return versions[-1]
    # The file has the size of one version, and each sector comes from any version.
    size_version = random.randrange(len(versions))
    size = len(versions[size_version])
    mixture = b"".join(
        _sector(random.choice(_candidates(versions, size_version, start)), start, random)
        for start in range(0, size, SECTOR_BYTES)
    )
    # One sector is torn: from the position ``tear`` to its end it comes from another version.
    tear = random.randrange(size + 1)
    torn_in = random.choice(_candidates(versions, size_version, tear))
    sector_start = tear - tear % SECTOR_BYTES
    end = min(size, sector_start + SECTOR_BYTES)
    return mixture[:tear] + torn_in[tear:end].ljust(end - tear, b"\0") + mixture[end:size]


def _candidates(versions: list[bytes], size_version: int, position: int) -> list[bytes]:
    """Return the versions from which the content at ``position`` may come.

    The file has the size of the version number ``size_version``, so the truncations after this
    version are lost. A later version that ends before ``position`` was truncated: nothing comes
    from it, not even zeros. Example: version 0 has 1,024 bytes, version 1 is cut to 512, and the
    file has the size of version 0. Then the second sector can only come from version 0.
    """
    return [
        version
        for number, version in enumerate(versions)
        if number <= size_version or len(version) > position
    ]


def _sector(version: bytes, start: int, random: Random) -> bytes:
    """Return the sector at ``start`` of ``version``, which may end before or within the sector."""
    sector = version[start : start + SECTOR_BYTES]
    if not sector and random.random() < _OLD_BYTES_RATE:
        return random.randbytes(SECTOR_BYTES)
    return sector.ljust(SECTOR_BYTES, b"\0")
