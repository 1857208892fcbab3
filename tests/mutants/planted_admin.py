"""Bugs to plant into the orders of administrators, hunted by ordered runs and by tests."""

from __future__ import annotations

from tests.mutants.planting import OrderedRuns, Package, Planted, nodes

_COMPARISON = "unit/admin/test_operations_replica_comparison.py::"

ADMIN_BUGS = (
    Planted(
        "a source is dropped before a session without it",
        Package.ADMIN,
        "if step := next_step_after_removal(observation, (view,), frozenset({order.source})):\n"
        "    return step\n",
        "",
        "A replica that is needed for a quorum of the last session is lost.",
        OrderedRuns("move", lost=True, count=24),
    ),
    Planted(
        "a moved replica is not filled before it is assigned",
        Package.ADMIN,
        "next_fill_step(observation, view, order.destination)\n"
        "or next_switch_on_step(observation, view, order.destination)\n"
        "or _change(view, wanted, order)\n",
        "next_switch_on_step(observation, view, order.destination)\n"
        "or _change(view, wanted, order)\n",
        "One more failure leaves the partition without a quorum.",
        nodes(
            "unit/admin/test_operations_health.py::test_moved_replica_is_filled_before_it_is_assigned"
        ),
    ),
    Planted(
        "a replica that servers write is copied to",
        Package.ADMIN,
        "if is_on:\n    return SwitchOff(destination, (view.partition,))\n",
        "",
        "A copy and a server write one replica at the same time.",
        nodes(
            "unit/admin/test_operations_health.py::test_replica_that_servers_may_write_is_switched_off_before_a_copy"
        ),
    ),
    Planted(
        "a retired group is dropped at once",
        Package.ADMIN,
        "next_step_after_removal(observation, views, leaving) or _drop(",
        "_drop(",
        "Replicas are deleted that a session may still need.",
        OrderedRuns("retire", lost=True),
    ),
    Planted(
        "committed transactions need no quorum of the last session",
        Package.ADMIN,
        "knows_committed = not last_session or len(of_last_session) >= quorum(len(last_session))\n",
        "knows_committed = not last_session or bool(of_last_session)\n",
        "A committed transaction can be missing from every replica of the next session.",
        nodes(
            "unit/admin/test_operations_health.py::test_session_needs_a_quorum_of_the_assigned_and_of_the_last_replicas"
        ),
    ),
    Planted(
        "a storage that is not assigned counts in the quorum",
        Package.ADMIN,
        "knows_committed and len(reached & assigned) >= quorum(len(assigned))",
        "knows_committed and len(reached) >= quorum(len(assigned))",
        "Servers do not contact it.",
        nodes(
            "unit/admin/test_operations_health.py::test_session_needs_a_quorum_of_the_assigned_and_of_the_last_replicas"
        ),
    ),
    Planted(
        "half of the replicas are a quorum",
        Package.ADMIN,
        "return count // 2 + 1\n",
        "return (count + 1) // 2\n",
        "Two halves of four replicas commit different transactions.",
        nodes(
            "unit/admin/test_operations_health.py::test_session_needs_a_quorum_of_the_assigned_and_of_the_last_replicas"
        ),
    ),
    Planted(
        "replicas are changed before the last change is complete",
        Package.ADMIN,
        "if view.session_replicas != view.replicas:\n",
        "if not view.session_replicas:\n",
        "Two changes together remove a quorum.",
        nodes(
            "unit/admin/test_operations_health.py::test_replicas_are_not_changed_before_the_last_change_is_complete"
        ),
    ),
    Planted(
        "replicas are changed while those that stay are unhealthy",
        Package.ADMIN,
        "if problem := first_unhealthy_reason(observation, view, staying):\n    return problem\n",
        "",
        "The replicas that stay are no quorum.",
        nodes(
            "unit/admin/test_operations_health.py::test_move_waits_while_a_replica_that_stays_is_behind"
        ),
    ),
    Planted(
        "a replica of another session is healthy",
        Package.ADMIN,
        "if not view.in_session(storage, held):\n",
        "if not view.metadata.takes_part(storage):\n",
        "A disk that was replaced counts as a complete replica.",
        nodes(
            "unit/admin/test_operations_health.py::test_replica_that_lags_or_has_another_session_is_unhealthy"
        ),
    ),
    Planted(
        "a replica that is behind is healthy",
        Package.ADMIN,
        "if end is not None and end < needed:\n",
        "if end is not None and end < needed - observation.lag_allowed:\n",
        "A replica without most of the log counts as a copy.",
        nodes(
            "unit/admin/test_operations_health.py::test_replica_that_lags_or_has_another_session_is_unhealthy"
        ),
    ),
    Planted(
        "a replica that its server does not reach is healthy",
        Package.ADMIN,
        "if storage in view.unreached:\n",
        "if storage in view.unreached - view.replicas:\n",
        "A change relies on a replica that takes no appends.",
        nodes(
            "unit/admin/test_operations_health.py::test_replica_that_the_server_does_not_reach_is_unhealthy"
        ),
    ),
    Planted(
        "an emptied disk counts as intact",
        Package.ADMIN,
        "return held.session_id >= state.session_id\n",
        "return held.session_id >= NO_SESSION\n",
        "A replica that lost transactions is switched on without a copy.",
        nodes(
            "unit/admin/test_operations_health.py::test_replica_counts_in_a_vote_unless_its_disk_has_lost_a_session"
        ),
    ),
    Planted(
        "records above the mark of a new replica stay",
        Package.ADMIN,
        "if not needs_cut and lag <= lag_allowed:\n",
        "if lag <= lag_allowed:\n",
        "Servers trust records that were never committed.",
        nodes(
            "unit/admin/test_operations_health.py::test_new_replica_with_records_above_its_mark_is_cut_by_a_copy"
        ),
    ),
    Planted(
        "a replica is switched off although its partition needs it",
        Package.ADMIN,
        "if isinstance(step, SwitchOff) and not _opens_without(observation, view, storage):\n",
        "if step is None and not _opens_without(observation, view, storage):\n",
        "A recovery closes the partition.",
        nodes(
            "unit/admin/test_operations_plans.py::test_replica_is_not_switched_off_without_quorum_of_others"
        ),
    ),
    Planted(
        "the shortest replica is the copy source",
        Package.ADMIN,
        "return max(marks, key=lambda storage: marks[storage], default=None)\n",
        "return min(marks, key=lambda storage: marks[storage], default=None)\n",
        "A copy ends before the session that it must reach.",
        nodes(
            "unit/admin/test_operations_health.py::test_replica_is_copied_from_the_one_that_reaches_furthest"
        ),
    ),
    Planted(
        "a group is retired partition by partition",
        Package.ADMIN,
        "for view in affected:\n"
        "    if problem := quorum_shortage(view, view.replicas - leaving):\n"
        "        return Refuse(problem)\n"
        "if not affected:\n",
        "if not affected:\n",
        "An order waits forever for a quorum that cannot exist.",
        nodes(
            "unit/admin/test_operations_plans.py::test_retirement_of_group_needed_for_quorum_is_refused"
        ),
    ),
    Planted(
        "a removed replica is not assigned again when its partition needs it",
        Package.ADMIN,
        "if reassigned:\n    return ChangeAssignment(reassigned)\n",
        "",
        "The partition stays closed until another storage returns.",
        nodes(
            "unit/admin/test_operations_plans.py::test_move_source_is_assigned_again_when_other_replicas_cannot_open"
        ),
    ),
    Planted(
        "a replica that counts in quorums is dropped",
        Package.ADMIN,
        "if not session_opens(others, view.replicas, view.session_replicas):\n",
        "if not others:\n",
        "Committed transactions are lost.",
        nodes(
            "unit/admin/test_operations_unassignment.py::test_unassignment_without_remaining_quorum_is_refused"
        ),
    ),
    Planted(
        "a replica is dropped while others are unhealthy",
        Package.ADMIN,
        "if view.server_problem is None and opens_with_healthy:\n",
        "if view.server_problem is None:\n",
        "No healthy quorum is left.",
        nodes(
            "unit/admin/test_operations_unassignment.py::test_unassignment_waits_while_another_replica_is_down"
        ),
    ),
    Planted(
        "a forced drop does not wait for a session without the storage",
        Package.ADMIN,
        "return self._wait_for_sessions_without_storage(views) or self._forced_drop()\n",
        "return self._forced_drop()\n",
        "A server writes to a replica that is deleted.",
        nodes(
            "unit/admin/test_operations_orders.py::test_forced_unassignment_waits_for_sessions_without_the_storage"
        ),
    ),
    Planted(
        "a copy sets marks below the mark of its destination",
        Package.ADMIN,
        "        if mark >= self._mark:\n            await",
        "        if True:\n            await",
        "The storage refuses them: a replica that was cut below its mark is never filled.",
        nodes(
            "unit/admin/test_operations_copy.py::"
            "test_copy_to_a_log_that_was_cut_below_its_mark_sets_no_mark_before_it_is_reached"
        ),
    ),
    Planted(
        "a copy cuts a destination that reaches further",
        Package.ADMIN,
        "if held_up_to >= last_id and not overwrite:\n",
        "if held_up_to > last_id + 1_000_000 and not overwrite:\n",
        "Committed transactions are cut.",
        nodes(
            "unit/admin/test_operations_copy.py::test_copy_leaves_a_destination_that_reaches_far_enough"
        ),
    ),
    Planted(
        "a copy continues over a gap",
        Package.ADMIN,
        "if not records.count or records.first_id() != first_id:\n",
        "if not records.count:\n",
        "The destination has a hole.",
        nodes(
            "unit/admin/test_operations_copy.py::test_copy_from_a_source_with_a_gap_fails_before_the_gap"
        ),
    ),
    Planted(
        "a step without an effect counts as progress",
        Package.ADMIN,
        "if step == self._last_succeeded:\n",
        "if step == self._last_succeeded and self.num_succeeded < 0:\n",
        "An order repeats one step forever.",
        nodes("unit/admin/test_operations_execution.py::test_step_without_effect_stalls_order"),
    ),
    Planted(
        "a failed step ends the order",
        Package.ADMIN,
        "except _TRANSIENT as problem:\n",
        "except NotPossible as problem:\n",
        "A storage that restarts interrupts an order.",
        nodes(
            "unit/admin/test_operations_execution.py::test_step_whose_storage_closes_the_connection_is_taken_again"
        ),
    ),
    Planted(
        "verification accepts one replica less",
        Package.ADMIN,
        "if available < quorum:\n",
        "if available < quorum - 1:\n",
        "A partition without a quorum passes its checks.",
        nodes(
            "unit/admin/test_operations_verification.py::test_quorum_check_ignores_replicas_that_are_not_assigned"
        ),
    ),
    Planted(
        "a comparison that ends early counts what it asked for as compared",
        Package.ADMIN,
        "self._last_id, self._next_id - 1, self._difference, self._ends, self._problems\n",
        "self._last_id, self._range_end, self._difference, self._ends, self._problems\n",
        "The check of a new volume skips transactions that were not compared.",
        nodes(
            _COMPARISON + "test_comparison_in_parts_finds_the_same_difference_as_a_whole_one",
            _COMPARISON + "test_slice_that_a_storage_did_not_answer_is_not_compared",
        ),
    ),
    Planted(
        "a comparison pauses while it narrows a difference down",
        Package.ADMIN,
        "if comparison.may_pause and not may_continue():\n",
        "if not may_continue():\n",
        "Each part ends before it has found the difference, and the next one begins anew.",
        nodes(_COMPARISON + "test_comparison_in_parts_finds_the_same_difference_as_a_whole_one"),
    ),
    Planted(
        "a comparison skips the first transaction of each slice",
        Package.ADMIN,
        "self._next_id = equal_end + 1\n",
        "self._next_id = equal_end + 2\n",
        "A damaged record is not found.",
        nodes("unit/admin/test_operations_comparison.py::test_comparison_finds_first_difference"),
    ),
    Planted(
        "a replica that ends early differs",
        Package.ADMIN,
        "case RangeSum() as answer if answer.last_id < self._next_id:\n"
        "    # The replica ends before the range, so `_set_range` will remove it.\n"
        "    self._limits[storage] = self._next_id - 1\n",
        "",
        "A replica that is behind is reported as damaged.",
        nodes("unit/admin/test_operations_comparison.py::test_comparison_finds_first_difference"),
    ),
    Planted(
        "a replica outside the session shows what is committed",
        Package.ADMIN,
        "and view.in_session(storage, held)\n",
        "",
        "Transactions that were never committed make all other replicas look incomplete.",
        nodes(
            "unit/admin/test_operations_health.py::test_longer_log_of_a_replica_outside_the_session_makes_no_other_replica_unhealthy"
        ),
    ),
    Planted(
        "a minority shows what is committed",
        Package.ADMIN,
        "if view.session_replicas and len(ends) >= quorum(len(view.session_replicas)):\n",
        "if ends:\n",
        "A replica that lacks committed transactions counts as level.",
        nodes(
            "unit/admin/test_operations_health.py::test_committed_id_is_known_if_a_quorum_of_the_session_reports"
        ),
    ),
    Planted(
        "storages of the last session are not observed",
        Package.ADMIN,
        "storages |= {s for p in partitions for s in metadata[p].replicas}\n",
        "pass\n",
        "An order does not see a former replica that a quorum still needs.",
        nodes(
            "unit/admin/test_operations_observation.py::test_storages_of_the_assignment_and_of_the_last_session_are_queried"
        ),
    ),
    Planted(
        "a copy must end within the time for one answer",
        Package.ADMIN,
        "deadline.reschedule(clock() + self._copy_seconds)\n",
        "",
        "A large replica can never be copied.",
        nodes(
            "unit/admin/test_operations_execution.py::test_copy_may_last_as_long_as_it_makes_progress"
        ),
    ),
    Planted(
        "a rescue passes over sessions of absent replicas",
        Package.ADMIN,
        "if len(complete) + len(unknown) < needed:\n",
        "if len(complete) < needed:\n",
        "Transactions of a session that opened with an absent replica are cut off.",
        nodes(
            "unit/admin/test_operations_rescue.py::test_rescue_is_undecided_if_an_unknown_replica_may_have_opened_the_session"
        ),
    ),
    Planted(
        "copies of an older session vote after a rescue",
        Package.ADMIN,
        "return _LastSession(session, mark, complete - closed, closed)\n",
        "return _LastSession(session, mark, complete, frozenset())\n",
        "Replicas differ at one id.",
        nodes(
            "unit/admin/test_operations_rescue.py::test_replica_that_kept_copies_of_an_older_session_is_closed_at_the_mark"
        ),
    ),
    Planted(
        "a rescue overwrites metadata of replicas",
        Package.ADMIN,
        "if present.value.replicas or present.value.session_id >= wanted.session_id:\n",
        "if present.value.session_id >= wanted.session_id:\n",
        "A rescue overwrites what a server has written since.",
        nodes(
            "unit/admin/test_operations_rescue_znodes.py::test_rescue_keeps_metadata_that_a_server_wrote_after_the_plan"
        ),
    ),
    Planted(
        "restored client ids are given again",
        Package.ADMIN,
        "last_client_id=backup.last_client_id + ID_ROOM,\n",
        "last_client_id=backup.last_client_id,\n",
        "A client takes another's append for its own.",
        nodes(
            "unit/admin/test_operations_rescue_znodes.py::test_restored_cluster_gives_no_id_that_was_given_after_the_backup"
        ),
    ),
    Planted(
        "replicas are compared with marks that were read after them",
        Package.ADMIN,
        "reports = {**first_reports, **second_reports}\n",
        "reports = first_reports\n",
        "A replica that has received all since seems to lag.",
        nodes(
            "unit/admin/test_operations_observation.py::test_replicas_are_compared_with_marks_that_were_read_before"
        ),
    ),
    Planted(
        "a broken connection to a storage is used again",
        Package.ADMIN,
        "if (storage := self._storages.pop(address, None)) is not None:\n",
        "if (storage := self._storages.get(address)) is not None:\n",
        "waltz top shows a restarted storage as down forever.",
        nodes(
            "unit/admin/test_operations_monitoring.py::test_storage_that_has_restarted_is_sampled_over_a_new_connection"
        ),
    ),
    Planted(
        "a partition that its server cannot open is healthy",
        Package.ADMIN,
        "if not report.health.get(partition, False):\n"
        '    return f"server {owner} could not open partition {partition}", unreached\n',
        "",
        "An administrator reads that a partition works, which is closed.",
        nodes(
            "unit/admin/test_operations_observation.py::test_partition_that_its_server_could_not_open_is_a_problem"
        ),
    ),
)
