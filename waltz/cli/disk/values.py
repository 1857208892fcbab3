"""The JSON values of ``waltz disk`` that are not rows of tables. Declares types only."""

from __future__ import annotations

from typing import NotRequired, TypedDict

from waltz.cli.disk.rows import CheckedSegment, FlawRow, SegmentHeader


class FileChange(TypedDict):
    """What a start of the storage would do to a file.

    ``would`` completes "a start would ...", such as "cut off 12 bytes, at byte 340". A size is in
    bytes, or None if the file does not exist then.
    """

    file: str
    size_before: int | None
    size_after: int | None
    would: str


class Start(TypedDict):
    """What a start of the storage would do to a partition.

    If the storage would serve it, the next record gets ``next_id``, and ``damaged`` has the ranges
    of damaged records that a start would find and not serve. Otherwise ``next_id`` is None, and
    ``refused`` is the reason.
    """

    partition: int
    refused: str | None
    next_id: int | None
    damaged: list[str]
    changes: list[FileChange]


class VerifiedFiles(TypedDict):
    """The result of ``waltz disk verify``."""

    segments: list[CheckedSegment]
    flaws: list[FlawRow]
    start: list[Start]


class DumpedRecord(TypedDict):
    """One record of a segment. It has ``data`` if the options asked for text or a serializer."""

    id: int
    offset: int
    client_id: int
    generation: int
    partition: int
    seq: int
    header: int
    size: int
    checksum: str
    data_base64: str
    data: NotRequired[str | None]


class DumpedSegment(TypedDict):
    """The result of ``waltz disk dump``; the options choose its parts."""

    header: NotRequired[SegmentHeader]
    records: NotRequired[list[DumpedRecord]]
