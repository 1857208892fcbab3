"""Bugs to plant into how nodes, connections and feeds begin and end, hunted by tests."""

from __future__ import annotations

from tests.mutants.planting import Package, Planted, nodes

_SERVER = "unit/server/test_server_node_lifecycle.py::"
_UNREAD = "unit/server/test_server_unread_clients.py::"
_REPEATED = "unit/server/test_server_repeated_requests.py::"
_PAUSED = "unit/server/test_server_paused_connections.py::"
_ENGINE = "unit/storage/test_storage_engine_shell.py::"
_STORAGE = "unit/storage/test_storage_node_lifecycle.py::"
_ENVIRONMENT = "unit/operator/test_operator_environment.py::"
_PROBLEMS = "unit/operator/test_operator_plan_problems.py::"

LIFECYCLE_BUGS = (
    Planted(
        "a stopped server keeps its session",
        Package.SERVER,
        "        await self._metadata_store.close()\n",
        "        pass\n",
        "Its ephemeral nodes stay until the session expires.",
        nodes(_SERVER + "test_stop_ends_the_session_and_the_tasks_of_the_server"),
    ),
    Planted(
        "a server that lost one of its background tasks goes on",
        Package.SERVER,
        "tasks, return_when=asyncio.FIRST_COMPLETED",
        "tasks, return_when=asyncio.ALL_COMPLETED",
        "A server does not follow assignments or access rules any more.",
        nodes(_SERVER + "test_wait_for_failure_raises_when_a_background_task_fails"),
    ),
    Planted(
        "one overloaded partition does not pause connections",
        Package.SERVER,
        "any(map(self._is_overloaded, partitions))",
        "all(map(self._is_overloaded, partitions))",
        "The open appends of a slow partition grow without a bound.",
        nodes(_SERVER + "test_connections_stay_paused_while_one_partition_is_overloaded"),
    ),
    Planted(
        "an overloaded partition holds all paused connections",
        Package.SERVER,
        "any(map(self._is_overloaded, partitions))",
        "any(map(self._is_overloaded, set().union(*paused.values())))",
        "A partition without a quorum stops clients that do not use it.",
        nodes(_PAUSED + "test_overloaded_partition_does_not_hold_connections_of_others"),
    ),
    Planted(
        "a pause after the last paused connection has left starts a second timer",
        Package.SERVER,
        "if self._timer is None:\n    self._check()\n",
        "if self._timer is None or len(self._paused) == 1:\n    self._check()\n",
        "The checks of paused connections use more and more CPU time.",
        nodes(
            _PAUSED + "test_pause_after_the_last_paused_connection_has_left_starts_no_second_timer"
        ),
    ),
    Planted(
        "a repeated mount is a barrier of its own",
        Package.SERVER,
        "return barrier if waiting is None else None\n",
        "return Barrier(peer, mount)\n",
        "While a partition has no session, the mounts of its clients fill the memory.",
        nodes(_REPEATED + "test_mounts_that_are_repeated_on_one_connection_are_one_barrier"),
    ),
    Planted(
        "a repeated mount does not wait for the appends before it",
        Package.SERVER,
        "registered.mount_barrier = registered.flush_barrier = None\n",
        "registered.flush_barrier = None\n",
        "A client regards an append as failed that is committed later.",
        nodes(_REPEATED + "test_repeated_mount_waits_for_the_appends_before_it"),
    ),
    Planted(
        "a repeated flush does not wait for the appends before it",
        Package.SERVER,
        "registered.mount_barrier = registered.flush_barrier = None\n",
        "registered.mount_barrier = None\n",
        "A client regards an append as failed that is committed later.",
        nodes(_REPEATED + "test_flush_after_an_append_waits_for_the_append"),
    ),
    Planted(
        "of repeated flushes only the first one is answered",
        Package.SERVER,
        "for req_id in barrier.req_ids():\n",
        "for req_id in [barrier.request.req_id]:\n",
        "A client waits for the answer to its last flush.",
        nodes(_REPEATED + "test_flushes_that_are_repeated_are_one_barrier_and_are_all_answered"),
    ),
    Planted(
        "a closed connection stays paused",
        Package.SERVER,
        "if connection is not None:\n    self.paused.forget(connection)\n",
        "pass\n",
        "Closed connections are resumed, and are kept in memory.",
        nodes(_SERVER + "test_closed_connection_is_not_resumed"),
    ),
    Planted(
        "a client with a long queue of reads is read on",
        Package.SERVER,
        "if self._peer.has_long_queue:\n    self._host.pause_client(self._ready_connection())\n",
        "pass\n",
        "The queue of one client grows without a bound.",
        nodes(_UNREAD + "test_client_with_a_long_queue_of_reads_is_not_read"),
    ),
    Planted(
        "reads count for the rate of appends",
        Package.SERVER,
        "for body in bodies if body[0] in _APPENDING_TYPES)",
        "for body in bodies)",
        "A client that only reads is not read any more.",
        nodes(_UNREAD + "test_only_appends_count_for_the_rate_of_a_client"),
    ),
    Planted(
        "headers for two feeds are read at the same time",
        Package.SERVER,
        "if self._reading is not None or first_id == self._failed_id:\n    return\n",
        "",
        "The answer to one read is taken for that to another one.",
        nodes(
            "unit/server/test_server_feeds.py::"
            "test_headers_for_two_feeds_are_read_one_read_after_the_other"
        ),
    ),
    Planted(
        "a flush that has arrived is answered to a closed connection",
        Package.SERVER,
        "self._arrived = list(filter(stays, self._arrived))\n",
        "pass\n",
        "Barriers of closed connections are kept.",
        nodes(
            "unit/server/test_server_append_queue.py::"
            "test_closed_connection_gets_no_answer_to_its_barriers_and_keeps_its_appends"
        ),
    ),
    Planted(
        "a round begins during another one",
        Package.STORAGE,
        "while not self._is_committing and not self._failed.is_set():",
        "while not self._failed.is_set():",
        "Rounds are small, and each append costs a flush.",
        nodes(_ENGINE + "test_round_gets_everything_that_arrives_during_the_round_before"),
    ),
    Planted(
        "a directory is closed as complete after a failure",
        Package.STORAGE,
        "        if not self._failed.is_set():\n            try:\n",
        "        if True:\n            try:\n",
        "The next start trusts files whose content is unknown.",
        nodes(_ENGINE + "test_failed_round_is_reported_once_and_nothing_is_answered_after_it"),
    ),
    Planted(
        "flushed marks are not made durable between rounds",
        Package.STORAGE,
        "self.engine.directory.flush_marks()\n",
        "pass\n",
        "After a loss of power the marks lag behind by hours.",
        nodes(_ENGINE + "test_marks_are_flushed_after_rounds_and_only_then"),
    ),
    Planted(
        "the end of the scrubber is not noticed",
        Package.STORAGE,
        "task.add_done_callback(self._background_ended)\n",
        "pass\n",
        "Nothing checks the records any more.",
        nodes(_STORAGE + "test_bug_of_the_scrubber_ends_the_process"),
    ),
    Planted(
        "administrators share the bound of connections with servers",
        Package.STORAGE,
        "    # An administrator must reach a storage whose port for servers is full.\n"
        "    new_bounds(),\n",
        "    accepted,\n",
        "A storage with too many connections cannot be repaired.",
        nodes(_STORAGE + "test_administrator_reaches_a_storage_whose_port_for_servers_is_full"),
    ),
    Planted(
        "reads of a closed connection stay queued",
        Package.STORAGE,
        "            self._reads.clear()\n",
        "",
        "A storage does the reads of servers that are gone.",
        nodes(
            "unit/storage/test_storage_intake.py::"
            "test_closed_connection_begins_none_of_its_waiting_requests"
        ),
    ),
    Planted(
        "a container that waits counts as started",
        Package.OPERATOR,
        'each.get("started") and "running" in (each.get("state") or {})',
        'each.get("started")',
        "A rolling change goes on although a pod has failed.",
        nodes(
            "unit/operator/test_operator_pods_of_sets.py::"
            "test_pod_has_started_only_if_every_container_runs_and_passed_its_startup_probe"
        ),
    ),
    Planted(
        "a session with an earlier ZooKeeper is kept",
        Package.OPERATOR,
        "if session and session.target == target and session",
        "if session and session",
        "The operator changes the znodes of the ZooKeeper that was configured before.",
        nodes(_ENVIRONMENT + "test_session_is_replaced_if_it_is_unhealthy_or_of_another_address"),
    ),
    Planted(
        "another number of partitions is accepted",
        Package.OPERATOR,
        "case ClusterPresent(_, partitions, _) if partitions != count:\n",
        "case ClusterPresent(_, partitions, _) if False:\n",
        "The cluster runs with partitions that its specification does not have.",
        nodes(_PROBLEMS + "test_metadata_with_another_number_of_partitions_is_a_problem"),
    ),
    Planted(
        "a storage with partitions is registered again",
        Package.OPERATOR,
        "if maps.assignments.partitions.get(storage):\n    result += problem(\n",
        "if False:\n    result += problem(\n",
        "The assignments of a storage that holds transactions are removed.",
        nodes(_PROBLEMS + "test_storage_with_partitions_and_another_registration_is_a_problem"),
    ),
    Planted(
        "a pool that is deleted without its cluster is not released",
        Package.OPERATOR,
        "    await release_orphaned_pool(reconciler, namespace, name)\n\n",
        "    pass\n\n",
        "Its finalizer stays, and the namespace cannot be deleted.",
        nodes(
            "unit/operator/test_operator_handlers.py::"
            "test_deleted_pool_is_released_if_its_cluster_is_gone"
        ),
    ),
    Planted(
        "a partition that moves stays at its former link",
        Package.CLIENT,
        "if old is not None and old.link is not link:\n    self._user.detached(partition)\n",
        "pass\n",
        "Requests go to a server that has lost the partition.",
        nodes("unit/client/test_client_links.py::test_partition_follows_its_server"),
    ),
    Planted(
        "a server that stops disconnects its clients first",
        Package.SERVER,
        "await self._finish_appends()\n",
        "await self.listener.close()\nawait self._finish_appends()\n",
        "Clients do not get the outcomes of their open appends.",
        nodes(
            "unit/server/test_server_stopping.py::test_stop_closes_partitions_after_their_appends_are_resolved"
        ),
    ),
    Planted(
        "a feed that was replaced is queued again",
        Package.SERVER,
        "if self.is_open(feed):\n    self._enqueue(feed, high_water_mark)\n",
        "if feed.peer in self._feeds:\n    self._enqueue(feed, high_water_mark)\n",
        "A client gets the transactions of two feeds.",
        nodes(
            "unit/server/test_server_feed_schedule.py::test_feed_that_is_replaced_during_its_turn_is_not_queued_again"
        ),
    ),
)
