"""Bugs to plant into fences, votes and store sessions, hunted by simulated seeds and by tests."""

from __future__ import annotations

from tests.mutants.planting import Package, Planted, nodes

_RESTORED = "unit/server/test_server_restored_replica.py::"
_TRANSCRIPT = "transcripts/test_transcripts.py::test_transcript_shows_what_the_code_does"

SESSION_BUGS = (
    Planted(
        "no fence",
        Package.STORAGE,
        "if session_id != highest_session:\n",
        "if session_id > highest_session:\n",
        "A storage takes appends of any session.",
    ),
    Planted(
        "the fence rises only with a mark",
        Package.STORAGE,
        "if session_id != highest_session:\n",
        "if session_id < info.session_id:\n",
        "Only setting the low-water mark fences, not the request for the last session.",
    ),
    Planted(
        "an older server that reconnects lowers the fence",
        Package.STORAGE,
        "highest = max(self._highest_arrived, self._highest_admitted)\n",
        "highest = self._highest_admitted = request.session_id\n",
        "The server of the last request may write, even one of an older session.",
    ),
    Planted(
        "a recovery does not know what its server has committed",
        Package.SERVER,
        "self._highest_counted_mark = committed\n",
        "self._highest_counted_mark = -1\n",
        "A disk restored from a copy of the same session outvotes a committed transaction.",
        nodes(_RESTORED + "test_restored_replica_with_one_absent_loses_no_committed_append"),
    ),
    Planted(
        "a store session survives a reconnect",
        Package.SERVER,
        'self._fail(replica, f"connection to {storage} lost")\n',
        "pass\n",
        "A replica stays in its session although requests to it are lost.",
        nodes(
            "unit/server/test_server_store.py::test_failing_replica_backs_off_longer_each_time_and_returns_in_a_new_session"
        ),
    ),
    Planted(
        "an old generation is not ended",
        Package.SERVER,
        "if value.generation > self._generation:\n",
        "if value.generation > self._generation + 1000:\n",
        "A server that lost the partition begins sessions nevertheless.",
        nodes(
            "unit/server/test_server_store.py::test_later_generation_in_the_metadata_ends_the_attempt"
        ),
    ),
    Planted(
        "absent replicas do not count",
        Package.SERVER,
        "absent = len(self._last_replicas) - len(counted)\n",
        "absent = 0\n",
        "Records that absent replicas may have committed are truncated.",
    ),
    Planted(
        "an emptied replica supports",
        Package.SERVER,
        "return VoteRole.UNKNOWN, RecoveryCase.OLDER, known_up_to\n",
        "return VoteRole.CLEAN, RecoveryCase.OLDER, known_up_to\n",
        "A replica that lost acknowledged records outvotes those that have them.",
        nodes(_TRANSCRIPT + "[emptied_disk]"),
    ),
    Planted(
        "an emptied replica votes",
        Package.SERVER,
        "if session < entry.session_id:\n",
        "if session < entry.session_id and session >= 0:\n",
        "An empty replica counts as one that never had anything.",
        nodes(_TRANSCRIPT + "[emptied_disk]"),
    ),
    Planted(
        "an older replica is not truncated",
        Package.SERVER,
        "return VoteRole.UNKNOWN, RecoveryCase.OLDER, known_up_to\n",
        "return VoteRole.UNKNOWN, RecoveryCase.OLDER, None\n",
        "Its records above its own mark may be of another session.",
        nodes(_TRANSCRIPT + "[restored_snapshot]"),
    ),
    Planted(
        "a new replica supports",
        Package.SERVER,
        "and name in self._last_replicas\n",
        "",
        "A replica that was not in the last session votes on its commits.",
    ),
    Planted(
        "one vote less is sufficient",
        Package.SERVER,
        "self._last_quorum = len(last_replicas) // 2 + 1\n",
        "self._last_quorum = len(last_replicas) // 2\n",
        "Records on one replica of three count as committed.",
    ),
    Planted(
        "the unresolved tail is not truncated",
        Package.SERVER,
        "return cut_log(mark, state.low_water_mark if self._last_replicas else -1)\n",
        "return cut_log(mark + 1000, -1)\n",
        "Records above the resolved mark stay in the log.",
        nodes(_TRANSCRIPT + "[undecidable_vote]"),
    ),
    Planted(
        "a returning replica is not truncated",
        Package.SERVER,
        "return VoteRole.NEW, RecoveryCase.NEW_REPLICA, low_water_mark\n",
        "return VoteRole.NEW, RecoveryCase.NEW_REPLICA, None\n",
        "Its records of an earlier assignment may have diverged.",
        nodes(
            "unit/server/test_server_recovery_histories.py::test_resolved_mark_never_goes_down_in_a_later_session"
        ),
    ),
    Planted(
        "a replica that left is not truncated",
        Package.SERVER,
        "return VoteRole.CLEAN, RecoveryCase.CLOSED, entry.closing_mark\n",
        "return VoteRole.CLEAN, RecoveryCase.CLOSED, None\n",
        "Its last records of the session that it left may never have been committed.",
        nodes(
            "unit/server/test_server_lost_metadata.py::test_replica_with_an_unconfirmed_mark_is_cut_below_it"
        ),
    ),
    Planted(
        "copies of a session that never opened are truncated",
        Package.SERVER,
        "if session > _last_opened(entries):\n",
        "if session > _last_opened(entries) + 1000:\n",
        "The next session counts them as older records of the replica.",
        nodes(
            "unit/server/test_server_recovery_histories.py::test_resolved_mark_never_goes_down_in_more_histories"
        ),
    ),
    Planted(
        "clean before it has recovered",
        Package.SERVER,
        "if replica is not None and replica.recovered:\n",
        "if replica is not None:\n",
        "The metadata names a replica that does not have the log yet.",
        nodes(
            "unit/server/test_server_failing_replicas.py::test_cold_start_opens_without_a_refusing_replica"
        ),
    ),
    Planted(
        "a replica counts before the metadata names it",
        Package.SERVER,
        "admitted = frozenset(filter(self._written.takes_part, self.recovery.recovered()))\n",
        "admitted = self.recovery.recovered()\n",
        "The next vote does not count the records that it acknowledged.",
    ),
    Planted(
        "a replica that never took part is not truncated",
        Package.SERVER,
        "return VoteRole.CLEAN, RecoveryCase.NEVER_TOOK_PART, known_up_to\n",
        "return VoteRole.CLEAN, RecoveryCase.NEVER_TOOK_PART, None\n",
        "Its records of an earlier assignment may have diverged.",
    ),
    Planted(
        "one of three is a quorum",
        Package.SERVER,
        "self._quorum = len(replicas) // 2 + 1\n",
        "self._quorum = len(replicas) // 2\n",
        "An append is committed on a minority.",
    ),
    Planted(
        "the fastest replica commits",
        Package.SERVER,
        "return acknowledged[quorum - 1]\n",
        "return acknowledged[0]\n",
        "Records that one replica acknowledged count as committed.",
    ),
    Planted(
        "a late answer of the metadata counts",
        Package.SERVER,
        "if operation is not self._operation:\n    return False\nself._operation = None\n",
        "self._operation = None\n",
        "The answer to an operation of an earlier generation counts as that to the last one.",
    ),
    Planted(
        "an id is given twice",
        Package.SERVER,
        "self._next_id = mark + 1\n",
        "self._next_id = mark\n",
        "A session begins with the id of the last transaction.",
    ),
    Planted(
        "a copy waits for a lost source",
        Package.SERVER,
        "self._copy_source_lost(storage, request)\nreturn True\n",
        "return True\n",
        "A replica that copies from a peer stops when the connection to it is lost.",
        nodes(
            "unit/server/test_server_failing_replicas.py::test_replica_copies_from_another_source_when_its_source_fails"
        ),
    ),
    Planted(
        "in-doubt appends in the log are reported as failed",
        Package.SERVER,
        "num_committed = max(0, mark + 1 - in_doubt.first_id)\n",
        "num_committed = 0\n",
        "Appends of an interrupted session are reported as failed, but are in the log.",
    ),
    Planted(
        "truncated in-doubt appends are reported as committed",
        Package.SERVER,
        "num_committed = max(0, mark + 1 - in_doubt.first_id)\n",
        "num_committed = len(in_doubt.appends)\n",
        "Appends of an interrupted session are reported as committed, but were truncated.",
    ),
    Planted(
        "in-doubt appends are dropped",
        Package.SERVER,
        "session.in_doubt()",
        "[]",
        "They get no outcome, and their locks stay taken.",
    ),
    Planted(
        "commits of another owner leave no mark in the lock table",
        Package.SERVER,
        "self._queue.take_every_lock(mark)\n",
        "pass\n",
        "A server that gets its partition back misses the locks that were taken meanwhile.",
        nodes(
            "unit/server/test_server_partition.py::"
            "test_returning_owner_treats_every_lock_as_taken_at_the_new_mark"
        ),
    ),
    Planted(
        "waiters of an old generation stay",
        Package.SERVER,
        "self._queue.drop_ungranted()\n",
        "",
        "An append is committed although its client was answered that it is not in the log.",
        nodes(
            "unit/server/test_server_append_batches.py::test_new_generation_fails_waiting_batches_and_leaves_sent_ones_open"
        ),
    ),
    Planted(
        "an unconfirmed mark answers mounts",
        Package.SERVER,
        "if (mark := self.high_water_mark) is None:\n",
        "if (mark := self._mark) is None:\n",
        "A server that gets its partition back answers with the end of an older log.",
    ),
    Planted(
        "an unconfirmed mark answers requests for the mark",
        Package.SERVER,
        "return self._mark if self._confirmed else None\n",
        "return self._mark\n",
        "A server that gets its partition back reports the end of an older log.",
        nodes(
            "unit/server/test_server_partition_reads.py::test_mark_request_gets_no_mark_until_a_session_of_the_new_generation_opens"
        ),
    ),
    Planted(
        "an open session is drained before ZooKeeper answers",
        Package.SERVER,
        "elif session.phase is SessionPhase.OPEN and (self._write_in_doubt or renewal is not None)"
        ":\n    self._awaited.start(ReadMetadata())\n",
        "elif session.phase is SessionPhase.OPEN and renewal is not None:\n"
        "    session.drain(renewal)\n",
        "While ZooKeeper is away, a checkpoint or a returning replica stops all appends.",
        nodes(
            "unit/server/test_server_session_renewal.py::test_session_takes_appends_while_zookeeper_does_not_answer"
        ),
    ),
    Planted(
        "a failed operation on the metadata ends an open session",
        Package.SERVER,
        'if session.phase is not SessionPhase.OPEN:\n    session.close(f"metadata: {reason}")\n',
        "if session.phase is not SessionPhase.DRAINING:\n"
        '    session.close(f"metadata: {reason}")\n',
        "While ZooKeeper is away, a returning replica stops all appends.",
        nodes(
            "unit/server/test_server_session_renewal.py::test_failed_write_of_an_open_session_is_resolved_by_a_read"
        ),
    ),
    Planted(
        "a renewal ignores a newer generation",
        Package.SERVER,
        "if (value.generation, value.session_id) != (session.generation, session.session_id):\n",
        "if value.session_id < session.session_id:\n",
        "A server that has lost the partition drains its session and keeps its clients waiting.",
        nodes(
            "unit/server/test_server_session_renewal.py::test_generation_of_another_server_ends_the_session"
        ),
    ),
    Planted(
        "a replica below its local mark is counted",
        Package.SERVER,
        "if max_id < state.local_mark:\n",
        "if False:\n",
        "A replica that has lost records supports a mark below acknowledged transactions.",
        nodes(
            "unit/server/test_server_recovery_marks.py::test_replica_below_its_local_mark_is_not_counted"
        ),
    ),
    Planted(
        "metadata without replicas are always those of a new partition",
        Package.SERVER,
        "if not self._last_replicas and max_id >= 0:\n",
        "if False:\n",
        "When the metadata are lost, all replicas are cut to nothing.",
        nodes(
            "unit/server/test_server_lost_metadata.py::test_evidence_of_an_earlier_session_keeps_partition_closed"
        ),
    ),
    Planted(
        "a low-water mark is no evidence of lost metadata",
        Package.SERVER,
        "elif not self._last_replicas and low_water_mark >= 0:\n",
        "elif False:\n",
        "A replica that lost its log opens the partition anew, although its mark shows the loss.",
        nodes(
            "unit/server/test_server_lost_metadata.py::test_evidence_of_an_earlier_session_keeps_partition_closed"
        ),
    ),
    Planted(
        "a server that lost a race reports lost metadata",
        Package.SERVER,
        "self._unconfirmed = contradiction\n",
        "self.reason = _kept_closed(str(contradiction))\n",
        "The reader rebuilds metadata that are right, while another server serves the partition.",
        nodes(
            "unit/server/test_server_lost_metadata.py::"
            "test_server_that_lost_a_race_does_not_report_lost_metadata"
        ),
    ),
    Planted(
        "session ids of lost metadata catch up",
        Package.SERVER,
        "if fence > recovery.session_id:\n",
        "if False:\n",
        "After as many attempts as sessions are missing, nothing shows that the metadata are old.",
        nodes(
            "unit/server/test_server_lost_metadata.py::test_server_does_not_open_partition_whose_metadata_vanished"
        ),
    ),
    Planted(
        "other records are copied",
        Package.SERVER,
        "if not records or records.first_id() != request.first_id:\n",
        "if not records:\n",
        "A replica gets records of other ids.",
        nodes(
            "unit/server/test_server_store_reads.py::test_copy_of_other_records_is_not_passed_on"
        ),
    ),
    Planted(
        "any answer to an append is an acknowledgement",
        Package.SERVER,
        "elif replica.stage is ReplicaStage.ACTIVE and isinstance(response, st.SuccessResponse):\n",
        "elif replica.stage is ReplicaStage.ACTIVE:\n",
        "A record counts as durable although its storage has not said so.",
        nodes(
            "unit/server/test_server_store_late_answers.py::test_unfit_answer_to_an_append_is_no_acknowledgement"
        ),
    ),
)
