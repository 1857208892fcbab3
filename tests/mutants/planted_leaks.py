"""Bugs that leave connections, files, locks or work behind, hunted by tests."""

from __future__ import annotations

from tests.mutants.planting import Package, Planted, nodes

LEAK_BUGS = (
    Planted(
        "a listener keeps connections that have ended",
        Package.NET,
        "if self._on_end is not None:\n    self._on_end(self)\n",
        "",
        "The memory of a server grows with each connection.",
        nodes("unit/net/test_net_connection.py::test_listener_forgets_connections_that_have_ended"),
    ),
    Planted(
        "an answered request stays pending",
        Package.NET,
        "on_answer = self._pending.pop(answer.seq_num, None)\n",
        "on_answer = self._pending.get(answer.seq_num)\n",
        "The end of the connection answers every request a second time.",
        nodes("unit/net/test_net_rpc.py::test_rpc_answer_is_passed_on_once"),
    ),
    Planted(
        "a request that the peer lacks is pending",
        Package.NET,
        "parts = self._port.messages.encode_parts(request, self._connection.version)\n",
        "self._pending[request.seq_num] = on_answer\n"
        "parts = self._port.messages.encode_parts(request, self._connection.version)\n"
        "del self._pending[request.seq_num]\n",
        "A request that was refused with an error is answered, too.",
        nodes(
            "unit/net/test_net_rpc.py::test_rpc_unsupported_request_is_refused_and_never_answered"
        ),
    ),
    Planted(
        "a handshake without an answer leaves its connection open",
        Package.NET,
        "except TimeoutError:\n    self.close()\n",
        "except TimeoutError:\n",
        "Each attempt to reach a hung storage leaks a connection.",
        nodes(
            "unit/net/test_net_rpc.py::test_rpc_open_without_an_answer_fails_and_closes_the_connection"
        ),
    ),
    Planted(
        "a refused handshake leaves its connection open",
        Package.NET,
        "if isinstance(answer, self._port.failure):\n    self.close()\n",
        "if isinstance(answer, self._port.failure):\n",
        "Each attempt to reach a storage of another cluster leaks a connection.",
        nodes("unit/net/test_net_rpc.py::test_rpc_open_at_another_cluster_is_refused"),
    ),
    Planted(
        "a cancelled handshake leaves its connection open",
        Package.NET,
        "except asyncio.CancelledError:\n    self.close()\n    raise\n",
        "except asyncio.CancelledError:\n    raise\n",
        "Each timeout of a tool leaks a connection.",
        nodes("unit/net/test_net_rpc.py::test_rpc_cancelled_open_closes_the_connection"),
    ),
    Planted(
        "a stopped link leaves its connection open",
        Package.NET,
        "if connection is not None:\n    connection.close()\nreturn self.task\n",
        "return self.task\n",
        "A server that no longer needs a storage stays connected to it.",
        nodes("unit/net/test_net_link.py::test_link_stopped_while_up_closes_without_a_callback"),
    ),
    Planted(
        "a listener without a free file tries again at once",
        Package.NET,
        "loop.remove_reader(listening)\n"
        "loop.call_later(_ACCEPT_PAUSE_SECONDS, self._resume_accepting)\n",
        "loop.call_later(_ACCEPT_PAUSE_SECONDS, self._resume_accepting)\n",
        "A process without free files uses a whole core and fills its log.",
        nodes(
            "unit/net/test_net_connection.py::test_listener_without_a_free_file_pauses_and_then_accepts"
        ),
    ),
    Planted(
        "a closed listener leaves the sockets of handshakes open",
        Package.NET,
        "if task.cancelled():\n",
        "if False:\n",
        "The peer learns of the end only when the garbage collector runs.",
        nodes("unit/net/test_net_tls.py::test_close_does_not_wait_for_a_peer_in_its_handshake"),
    ),
    Planted(
        "an interrupted wait keeps the admin lock",
        Package.METADATA,
        "    await self._abandon()\nfinally:\n    self._task_lock.release()\n",
        "    await self._abandon()\nfinally:\n    pass\n",
        "Every later change of the same process waits forever.",
        nodes(
            "unit/metadata/test_metadata_cluster.py::test_admin_lock_is_free_after_a_cancelled_wait"
        ),
    ),
    Planted(
        "a cancelled wait leaves the node of the admin lock",
        Package.METADATA,
        "    await self._abandon()\nfinally:\n    self._task_lock.release()\n",
        "    pass\nfinally:\n    self._task_lock.release()\n",
        "All other processes wait for the lock until the session of this process ends.",
        nodes(
            "unit/metadata/test_metadata_cluster.py::test_admin_lock_is_free_after_a_cancelled_creation"
        ),
    ),
    Planted(
        "a storage keeps its session with ZooKeeper",
        Package.STORAGE,
        "finally:\n    await store.close()\n",
        "finally:\n    pass\n",
        "Each storage keeps a session and threads that it does not use.",
        nodes(
            "unit/storage/test_storage_node.py::test_identity_of_the_cluster_is_read_and_the_session_closed"
        ),
    ),
    Planted(
        "a flush of a directory leaves it open",
        Package.STORAGE,
        "finally:\n    os.close(fd)\n",
        "finally:\n    pass\n",
        "A storage runs out of file descriptors.",
        nodes("unit/storage/test_storage_posix_disk.py::test_flush_directory_leaves_no_file_open"),
    ),
    Planted(
        "a storage stops below its tasks",
        Package.STORAGE,
        "if self._stopping and self.engine.idle and not self._inputs "
        "and not self._is_committing:\n",
        "if self._stopping and not self._inputs and not self._is_committing:\n",
        "A task uses files that are closed, and its answer is lost.",
        nodes(
            "unit/storage/test_storage_engine_thread.py::test_stopping_engine_thread_completes_submitted_jobs"
        ),
    ),
    Planted(
        "a read that timed out is sent again",
        Package.CLIENT,
        "requests.cancel(on_answer)\nraise\n",
        "raise\n",
        "A client repeats it until the client is closed.",
        nodes("unit/client/test_client_streams.py::test_read_and_high_water_mark_time_out"),
    ),
    Planted(
        "an interrupted call goes on",
        Package.SYNC,
        "self.cancel(work)\n",
        "",
        "An append that the user has interrupted is still sent.",
        nodes("unit/sync/test_client_sync.py::test_interrupted_call_cancels_its_work"),
    ),
    Planted(
        "a deactivated partition applies the rest of a batch",
        Package.SYNC,
        "if self._stopping.is_set():\n    return False\n",
        "",
        "Transactions are applied to a state that the application has handed over.",
        nodes(
            "unit/sync/test_client_callbacks.py::test_deactivated_partition_applies_no_further_transaction"
        ),
    ),
    Planted(
        "unanswered reads of a lost connection stay",
        Package.SERVER,
        "self._unanswered.pop(peer, None)\n",
        "",
        "The server keeps memory for each closed connection.",
        nodes("unit/server/test_server_range_reads.py::test_server_keeps_nothing_of_a_lost_reader"),
    ),
    Planted(
        "timers of a released partition stay",
        Package.SERVER,
        "for timer in self._timers:\n    timer.cancel()\n",
        "",
        "A released partition is kept, and acts when its timers expire.",
        nodes(
            "unit/server/test_server_hosted_partition.py::test_timer_of_a_closed_partition_does_not_expire"
        ),
    ),
    Planted(
        "ended links stay",
        Package.CLIENT,
        "self._ending = [task for task in self._ending if not task.done()]\n",
        "",
        "Memory grows with each change of the assignment.",
        nodes("unit/client/test_client_link.py::test_links_to_former_servers_are_forgotten"),
    ),
    Planted(
        "an interrupted submit goes on",
        Package.SYNC,
        "    thread.cancel(work)\n    raise\nreturn thread.result(submitted)\n",
        "    raise\nreturn thread.result(submitted)\n",
        "The work of a submit that was interrupted waits forever.",
        nodes("unit/sync/test_client_sync.py::test_interrupted_submit_cancels_its_work"),
    ),
    Planted(
        "an unfinished handshake stays counted",
        Package.NET,
        "self._unconnected.discard(peer_socket)\nself._accepted.leave()\n",
        "self._unconnected.discard(peer_socket)\n",
        "The port refuses everyone after many failed handshakes.",
        nodes(
            "unit/net/test_net_accepted.py::test_peer_that_is_refused_before_its_handshake_is_no_longer_counted"
        ),
    ),
    Planted(
        "messages behind the end of their connection are handled",
        Package.SERVER,
        "if self._ready_connection().closed:\n",
        "if False:\n",
        "A partition keeps the feeds of a closed connection for ever.",
        nodes(
            "unit/server/test_server_client_connection.py::test_messages_behind_one_that_closes_the_connection_are_dropped"
        ),
    ),
    Planted(
        "a file beyond the open segments stays open",
        Package.STORAGE,
        "_, least_recent = self._open.popitem(last=False)\nleast_recent.close()\n",
        "self._open.popitem(last=False)\n",
        "Readers of old segments use up the file descriptors of a storage.",
        nodes("unit/storage/test_storage_log.py::test_number_of_open_sealed_segments_is_bounded"),
    ),
    Planted(
        "lost requests stay in the table of unanswered ones",
        Package.SERVER,
        "self._sent_at.pop(seq, None)\n"
        "response = None if isinstance(answer, ConnectionLost) else answer\n"
        "if response is not None:\n",
        "response = None if isinstance(answer, ConnectionLost) else answer\n"
        "if response is not None:\n"
        "    self._sent_at.pop(seq, None)\n",
        "Each later connection to the storage is closed as one that does not answer.",
        nodes(
            "unit/server/test_server_storage_links.py::test_requests_of_a_lost_connection_do_not_close_the_next_one"
        ),
    ),
    Planted(
        "a change of partitions within another one is not refused",
        Package.SYNC,
        "if self._changing_thread == thread:\n    raise InCallback(call)\n",
        "",
        "An application that closes its client while its mark is read waits forever.",
        nodes(
            "unit/sync/test_client_callbacks.py::test_change_of_the_client_in_get_client_high_water_mark_is_refused"
        ),
    ),
    Planted(
        "a client that leaves while it is not read is not noticed",
        Package.NET,
        'if has_left(transport.get_extra_info("socket")):\n',
        "if False:\n",
        "Without a quorum, each client that leaves keeps its place among the connections.",
        nodes(
            "unit/net/test_net_paused_peer.py::test_client_that_leaves_a_paused_connection_is_lost"
        ),
    ),
    Planted(
        "the files of a storage stay open after a failed opening",
        Package.STORAGE,
        "except BaseException:\n    self._abandon()\n    raise\n",
        "except BaseException:\n    raise\n",
        "The thread for checkpoints goes on, and another start finds the directory in use.",
        nodes(
            "unit/storage/test_storage_files_closed.py::test_files_are_closed_after_an_opening_that_failed"
        ),
    ),
)
