"""Bugs to plant into locks, feeds and client cores, hunted by simulated seeds."""

from __future__ import annotations

from tests.mutants.planting import Package, Planted, nodes

CLIENT_BUGS = (
    Planted(
        "locks compared the wrong way round",
        Package.SERVER,
        "if latest > append.client_mark:\n",
        "if latest < append.client_mark:\n",
        "A client with the newest mark is refused, one with an old mark is not.",
    ),
    Planted(
        "locks compared too strictly",
        Package.SERVER,
        "if latest > append.client_mark:\n",
        "if latest >= append.client_mark:\n",
        "A client with the newest mark is refused, and each retry is refused again.",
    ),
    Planted(
        "read locks are not checked",
        Package.SERVER,
        "append.checked += locks.slots(append.read_locks)\n",
        "append.checked += ()\n",
        "An append is committed although the data that it read have changed.",
    ),
    Planted(
        "commits leave no mark in the lock table",
        Package.SERVER,
        "if transaction_id is not None:\n",
        "if transaction_id is not None and transaction_id < 0:\n",
        "A lock is free again as soon as its append is committed.",
    ),
    Planted(
        "a batch marks its locks with its first id",
        Package.SERVER,
        "None if first_id is None else first_id + position)",
        "None if first_id is None else first_id)",
        "Locks seem to have been taken earlier than they were.",
    ),
    Planted(
        "open appends hold no locks",
        Package.SERVER,
        "locks.hold(append.taken)\n",
        "",
        "Two appends under the same lock are committed together.",
    ),
    Planted(
        "a new lock table begins without a mark",
        Package.SERVER,
        "self._marks = [high_water_mark] * size\n",
        "self._marks = [-1] * size\n",
        "After a change of owner, older locks are forgotten.",
    ),
    Planted(
        "one client's appends overtake each other",
        Package.SERVER,
        "return client in self._clients or any(",
        "return any(",
        "The client concludes from the later one's commit that the earlier one failed.",
    ),
    Planted(
        "flushes do not wait for open appends",
        Package.SERVER,
        "while self._placed_barriers"
        " and self._placed_barriers[0].num_granted <= self._num_resolved:\n",
        "while self._placed_barriers:\n",
        "A flush is answered while earlier appends are open.",
        nodes(
            "unit/server/test_server_partition.py::"
            "test_flush_is_answered_when_earlier_appends_are_resolved"
        ),
    ),
    Planted(
        "a feed block with a gap",
        Package.SERVER,
        "if block is not None and len(block) >= start:\n",
        "if block is not None:\n",
        "The feed cache joins blocks over a gap.",
        nodes("unit/server/test_server_caches.py::test_feed_cache_never_bridges_a_gap"),
    ),
    Planted(
        "a feed leaves out its last transaction",
        Package.SERVER,
        "feed.position += wanted\n"
        "feed.remaining -= wanted\n"
        "out = in_version(frames[: wanted * FRAME_BYTES], feed.peer.version)\n",
        "feed.position += wanted\n"
        "feed.remaining -= wanted\n"
        "out = in_version(frames[: max(1, wanted - 1) * FRAME_BYTES], feed.peer.version)\n",
        "A client does not receive the last transaction of each part of the feed.",
    ),
    Planted(
        "records cached under the wrong id",
        Package.SERVER,
        "self._cache.put(self._partition, transaction_id, tail)\nif transaction_id == wanted:\n",
        "self._cache.put(self._partition, transaction_id ^ 1, tail)\n"
        "if transaction_id == wanted:\n",
        "A read of a transaction's data is answered with its neighbour's.",
    ),
    Planted(
        "a lost connection settles appends as absent",
        Package.CLIENT,
        "self._sent.drop_open_flushes()\nself.mount.detach()\n",
        "self._sent.drop_open_flushes()\n"
        "self.mount.detach()\n"
        "self._sent._settle_absent_before(1 << 62)\n",
        "An append is reported absent because its answer was lost.",
    ),
    Planted(
        "a refused lock is reported too early",
        Package.CLIENT,
        "if refused.conflict <= mark:\n",
        "if refused.conflict <= mark + 1000:\n",
        "A client retries before it has received the transaction that took the lock.",
    ),
    Planted(
        "a flush settles appends that came after it",
        Package.CLIENT,
        "self._settle_absent_before(max(reached))\n",
        "self._settle_absent_before(1 << 62)\n",
        "Appends that were sent after the flush are reported absent.",
    ),
    Planted(
        "a flush settles appends before the feed has reached its mark",
        Package.CLIENT,
        "reached = [flush.place for flush in self._answered_flushes if flush.mark <= mark]\n",
        "reached = [flush.place for flush in self._answered_flushes]\n",
        "An append is reported absent that the feed has not delivered yet.",
        nodes(
            "unit/client/test_client_appends.py::test_answered_flush_counts_when_its_mark_is_fed"
        ),
    ),
    Planted(
        "another client's transaction settles an append",
        Package.CLIENT,
        "may_be_own = client_id == own_id and seq in in_doubt\n",
        "may_be_own = seq in in_doubt\n",
        "An append is reported committed as another client's transaction.",
    ),
    Planted(
        "request ids begin again with each connection",
        Package.CLIENT,
        "self._connection_seq = connection_seq\n",
        "self._connection_seq = connection_seq\nself.ids.last = -1\n",
        "Two appends of a generation have the same id.",
    ),
    Planted(
        "repeated feed records are delivered again",
        Package.CLIENT,
        "if record[FEED_TRANSACTION_ID] == mark + 1:\n    mark += 1\n",
        "if record[FEED_TRANSACTION_ID] >= 0:\n    mark = record[FEED_TRANSACTION_ID]\n",
        "A stream delivers a transaction twice.",
        nodes(
            "unit/client/test_client_mount.py::"
            "test_feed_yields_each_transaction_once_and_never_skips_one"
        ),
    ),
    Planted(
        "a partition stays behind a log that has its end again",
        Package.SYNC,
        "    raise ClientAhead(self.number, self.mark, log_mark)\nself.problem = None\n",
        "    raise ClientAhead(self.number, self.mark, log_mark)\n",
        "A partition that works again refuses transactions.",
        nodes(
            "unit/sync/test_client_active_partition.py::test_partition_accepts_contexts_when_the_log_ends_at_its_mark_again"
        ),
    ),
    Planted(
        "a problem of a feed outlasts it",
        Package.SYNC,
        "self.problem = None\nawait self._wait_until_decided(batch)\n",
        "await self._wait_until_decided(batch)\n",
        "A partition that works again has the error of a feed that has ended.",
        nodes(
            "unit/sync/test_client_active_partition.py::test_problem_of_a_feed_ends_with_the_next_batch"
        ),
    ),
)
