"""The types of the dictionaries that `waltz.cli.disk.rows` forms for the JSON of ``waltz disk``."""

from __future__ import annotations

from typing import NotRequired, TypedDict

from waltz.cli.disk.rows import CheckedSegment, FlawRow, SegmentHeader


class FileChange(TypedDict):
    """What a start of the storage would do to a file.

    ``would`` completes "a start would ...", such as "cut off 12 bytes, at byte 340". The sizes
    before and after the start are in bytes; None if the file does not exist at that time.
    """

    file: str
    size_before: int | None
    size_after: int | None
    would: str


class Start(TypedDict):
    """What a start of the storage would do to a partition.

    If the storage would serve the partition, its next record would get the id ``next_id``, and
    ``damaged`` has the ranges of the damaged records, which are not served. If the storage would
    refuse the partition, ``refused`` is the reason, and ``next_id`` is None.
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
    """One record of a segment; it has ``data`` only with ``--data text`` or ``--serializer``.

    ``client_id``, ``generation``, ``partition`` and ``seq`` are the request id of the append.
    ``offset`` is the position of the record in the file, and ``size`` the size of its data, both in
    bytes. ``checksum`` is hexadecimal.
    """

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
    """The result of ``waltz disk dump``; --metadata and --records choose its parts."""

    header: NotRequired[SegmentHeader]
    records: NotRequired[list[DumpedRecord]]
