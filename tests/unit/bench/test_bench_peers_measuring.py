"""Peers are measured in turns; one that is missing or fails is left out, with the reason."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager

from typing_extensions import override

from bench.peers.measured import (
    READ_RECORDS,
    RECORDS,
    Description,
    Measured,
    Peer,
    PeerLoad,
    PeerMissing,
    ReadRun,
    RunningPeer,
)
from bench.peers.measuring import Extent, measure_peers
from bench.peers.processes import CommandFailed
from bench.peers.report import Report

EXTENT = Extent(rounds=2, size=512, scale=0.5)


class Fake(Peer, RunningPeer):
    """A peer in memory. ``fails_in`` is the round in which its appends fail."""

    def __init__(
        self,
        name: str,
        lock: str | None = "a lock",
        fails_in: int | None = None,
        missing: str | None = None,
    ) -> None:
        self.loads: list[PeerLoad] = []
        self.warmed_up: list[float] = []
        self.running = False
        self._description = Description(name, "1", "all", lock)
        self._fails_in = fails_in
        self._missing = missing
        self._starts = 0

    @override
    async def describe(self) -> Description:
        if self._missing:
            raise PeerMissing(self._missing)
        return self._description

    @override
    @asynccontextmanager
    async def start(self) -> AsyncIterator[RunningPeer]:
        self._starts += 1
        self.running = True
        yield self
        self.running = False

    @override
    async def warm_up(self, scale: float) -> None:
        self.warmed_up.append(scale)

    @override
    async def append(self, load: PeerLoad) -> Measured:
        if self._fails_in == self._starts:
            raise CommandFailed("the server has ended")
        self.loads.append(load)
        return Measured(
            seconds=1.0, records=load.records, p50_ms=1.0, p99_ms=2.0, client_seconds=0.1
        )

    @override
    async def read(self, size: int, records: int) -> Mapping[str, ReadRun]:
        return {"reader": ReadRun(seconds=1.0, records=records, client_seconds=0.1)}


async def measure(**peers: Peer) -> Report:
    return await measure_peers(peers, EXTENT, appends=True, reads=True, followers=False)


async def test_each_shape_has_a_series_of_all_rounds_with_and_without_locks() -> None:
    peer = Fake("one")
    report = await measure(one=peer)
    assert len(report.appends) == 2 * len(RECORDS)
    assert all(len(series.rounds) == EXTENT.rounds for series in report.appends)
    assert [load.records for load in peer.loads[: len(RECORDS)]] == [
        count // 2 for count in RECORDS.values()
    ]
    assert peer.warmed_up == [EXTENT.scale] * EXTENT.rounds


async def test_peer_without_conditional_appends_has_no_series_with_locks() -> None:
    report = await measure(one=Fake("one", lock=None), two=Fake("two"))
    assert {series.peer for series in report.appends if series.locks} == {"two"}
    assert {series.peer for series in report.appends if not series.locks} == {"one", "two"}


async def test_series_of_one_shape_are_beside_each_other() -> None:
    report = await measure(one=Fake("one"), two=Fake("two"))
    assert [series.peer for series in report.appends] == ["one", "two"] * (2 * len(RECORDS))


async def test_reads_have_a_scaled_number_of_records() -> None:
    [reads] = (await measure(one=Fake("one"))).reads
    assert (reads.peer, reads.reader) == ("one", "reader")
    assert [run.records for run in reads.rounds] == [READ_RECORDS // 2] * EXTENT.rounds


async def test_missing_peer_is_left_out_with_the_reason() -> None:
    report = await measure(one=Fake("one", missing="install it"), two=Fake("two"))
    assert report.missing == {"one": "install it"}
    assert [peer.name for peer in report.peers] == ["two"]


async def test_peer_that_fails_in_a_later_round_is_left_out_and_the_others_are_measured() -> None:
    report = await measure(one=Fake("one", fails_in=2), two=Fake("two"))
    assert report.missing == {"one": "it failed in round 2"}
    assert {series.peer for series in report.appends} == {"two"}
    assert [reads.peer for reads in report.reads] == ["two"]
    assert all(len(series.rounds) == EXTENT.rounds for series in report.appends)


async def test_only_the_chosen_part_is_measured() -> None:
    peer = Fake("one")
    report = await measure_peers({"one": peer}, EXTENT, appends=False, reads=True, followers=False)
    assert not peer.loads
    assert report.reads
    assert not report.appends
    assert not report.followers
