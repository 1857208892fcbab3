"""The content that a file may have after a loss of power, if its last changes were not flushed.

Touches nothing: the randomness is an argument.
"""

from __future__ import annotations

from random import Random

SECTOR_BYTES = 512

_OLD_BYTES_RATE = 0.2
"""How often a new sector whose write was lost has earlier bytes of the disk instead of zeros."""


def torn_content(versions: list[bytes], random: Random) -> bytes:
    """Return a mixture of the contents that a file has had since its last flush."""
    outcome = random.choice(("lost", "kept", "mixed", "mixed"))  # Mixed is twice as likely.
    if outcome == "lost" or len(versions) == 1:
        return versions[0]
    if outcome == "kept":
        return versions[-1]
    chosen = random.randrange(len(versions))
    size = len(versions[chosen])
    mixture = b"".join(
        _sector(random.choice(_candidates(versions, chosen, start)), start, random)
        for start in range(0, size, SECTOR_BYTES)
    )
    # One sector is torn: from the byte ``tear`` to its end it has the content of another version.
    tear = random.randrange(size + 1)
    torn_in = random.choice(_candidates(versions, chosen, tear))
    sector_start = tear - tear % SECTOR_BYTES
    end = min(size, sector_start + SECTOR_BYTES)
    return mixture[:tear] + torn_in[tear:end].ljust(end - tear, b"\0") + mixture[end:size]


def _candidates(versions: list[bytes], chosen: int, position: int) -> list[bytes]:
    """Return the versions that may supply the content at ``position``.

    The file has the size of the version ``chosen``. So the truncations after this version are lost,
    and a later version that ends before ``position`` supplies no content, not even zeros. Example:
    version 0 has 1,024 bytes, version 1 is cut to 512, and 0 is chosen. Then only version 0
    supplies the second sector.
    """
    return [
        version
        for number, version in enumerate(versions)
        if number <= chosen or len(version) > position
    ]


def _sector(version: bytes, start: int, random: Random) -> bytes:
    """Return the sector at ``start`` of ``version``, which may end before or within the sector."""
    sector = version[start : start + SECTOR_BYTES]
    if not sector and random.random() < _OLD_BYTES_RATE:
        return random.randbytes(SECTOR_BYTES)
    return sector.ljust(SECTOR_BYTES, b"\0")
