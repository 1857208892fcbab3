"""Find out when a problem began, as far as the metadata of partitions show it. Pure.

A server writes the metadata of a partition when a store session begins, when a quorum of replicas
has recovered in it, and when a further replica joins it. The metadata say which replicas took part
in the session when they were written. So a replica that is missing in the metadata was missing at
that time already, and a replica that is in them was not missing yet.

There is one error. From the beginning of a session until its quorum has recovered, the metadata
name no replica that takes part. If a storage stops answering in this time, its silence is dated
from the beginning of the session, which is too early.

In all functions, ``now`` is the newest sample of the cluster.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from waltz.admin.core.replicas import quorum
from waltz.admin.core.sample import Sample


@dataclass(frozen=True, slots=True)
class Period:
    """What is known of the time at which a problem began, in seconds since 1970.

    The problem was there at ``since`` already. It was not there yet at ``after``, an earlier time.
    Each of the two is None if no such time is known.
    """

    since: float | None = None
    after: float | None = None

    @classmethod
    def of_first(cls, periods: Iterable[Period]) -> Period:
        """Return the period in which the first of several problems of one kind began."""
        all_periods = list(periods)
        since = min((each.since for each in all_periods if each.since is not None), default=None)
        afters = [each.after for each in all_periods if each.after is not None]
        # A problem for which ``after`` is unknown may have begun before all others.
        after = min(afters, default=None) if len(afters) == len(all_periods) else None
        # In correct periods ``after`` precedes ``since``, so it does so here, too. Otherwise one of
        # the periods is wrong. Drop ``after``, so that the result does not contradict itself.
        if since is not None and after is not None and after >= since:
            after = None
        return cls(since, after)


UNKNOWN_PERIOD = Period()


def of_undated_problem(now: Sample, partition: int) -> Period:
    """Return the period of a problem that metadata do not show: nothing is known of its beginning.

    `health` calls this for such problems in place of a function that uses its arguments.
    """
    return UNKNOWN_PERIOD


def of_silent_storage(now: Sample, storage: str) -> Period:
    """Return since when a storage has not answered.

    The metadata of several partitions show this. Where a replica of the storage takes part in the
    session, the storage answered when the metadata were written. Where an assigned replica of the
    storage takes no part, it is assumed that the storage did not answer then.
    """
    answered: list[float] = []
    silent: list[float] = []
    for partition, at in now.changed_at.items():
        if now.in_session(partition, storage):
            answered.append(at)
        elif storage in now.maps.assignments.storages_of(partition):
            silent.append(at)
    last_answer = max(answered, default=None)
    # Silence before the last answer has ended, so only later silence counts.
    silent_since = [at for at in silent if last_answer is None or at > last_answer]
    return Period(min(silent_since, default=None), last_answer)


def of_silent_server(now: Sample, server: int) -> Period:
    """Return since when a server has not answered: it still ran when it last wrote metadata.

    The metadata of a partition were written by its present server if they have the generation that
    ZooKeeper assigns to this server together with the partition.
    """
    written = [
        at
        for partition, at in now.changed_at.items()
        if (metadata := now.metadata.get(partition)) is not None
        and now.owner(partition) == (server, metadata.generation)
    ]
    return Period(after=max(written, default=None))


def of_missing_server(now: Sample, partition: int) -> Period:
    """Return since when a partition has no server: it had one when its metadata were written."""
    return Period(after=now.changed_at.get(partition))


def of_closed_session(now: Sample, partition: int) -> Period:
    """Return since when a partition has no open session.

    If the metadata show that a majority of the replicas took part, a session was open when the
    metadata were written.
    """
    replicas = now.maps.assignments.storages_of(partition)
    present = sum(now.in_session(partition, storage) for storage in replicas)
    if not replicas or present < quorum(len(replicas)):
        return UNKNOWN_PERIOD
    return Period(after=now.changed_at.get(partition))


def of_missing_replica(now: Sample, partition: int) -> Period:
    """Return since when a partition lacks a replica: at least since its metadata were written."""
    return Period(since=now.changed_at.get(partition))


def of_switched_off_replica(now: Sample, partition: int, storage: str) -> Period:
    """Return since when a replica that is switched off is missing in its session.

    The metadata show this only if the replica takes no part in the session that they describe. A
    replica that servers may write, but not read, takes part: then nothing is known.
    """
    if now.in_session(partition, storage):
        return UNKNOWN_PERIOD
    return of_missing_replica(now, partition)


def of_refused_replica(now: Sample, partition: int, storage: str) -> Period:
    """Return since when a storage refuses a replica, which then takes part in no session."""
    at = now.changed_at.get(partition)
    return Period(after=at) if now.in_session(partition, storage) else Period(since=at)
