"""Bugs to plant into what clients meet: locks, feeds, their own cores."""

from __future__ import annotations

from tests.sim.planting import Package, Planted

CLIENT_BUGS = (
    Planted(
        "locks compared the wrong way round",
        Package.SERVER,
        "if latest > append.client_mark:\n",
        "if latest < append.client_mark:\n",
        "Who has seen everything is refused, who has not gets in.",
    ),
    Planted(
        "locks compared too strictly",
        Package.SERVER,
        "if latest > append.client_mark:\n",
        "if latest >= append.client_mark:\n",
        "Who has seen everything is refused, too, and can never do better.",
    ),
    Planted(
        "read locks are not checked",
        Package.SERVER,
        "append.checked += locks.slots(append.read_locks)\n",
        "append.checked += ()\n",
        "An append gets in although what it read has changed.",
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
        "locks.begin(append.taken)\n",
        "",
        "Two appends under the same lock get in together.",
    ),
    Planted(
        "a new lock table knows nothing",
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
        "The client takes the later one's commit for the failure of the earlier one.",
    ),
    Planted(
        "flushes wait for nobody",
        Package.SERVER,
        "while self._barriers and self._barriers[0][0] <= self._resolved:\n",
        "while self._barriers:\n",
        "A flush is answered while earlier appends are open.",
    ),
    Planted(
        "a feed block with a gap",
        Package.SERVER,
        "if block is not None and len(block) >= within * FRAME_BYTES:\n",
        "if block is not None:\n",
        "The feed cache closes up what it lacks.",
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
        "A client is never fed the last transaction of a stretch.",
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
        "a lost connection means absent",
        Package.CLIENT,
        "self._flushing.clear()\nself.mount.detach()\n",
        "self._flushing.clear()\nself.mount.detach()\nself._fail_up_to(self._ids.last)\n",
        "An append is reported absent because nothing was heard of it.",
    ),
    Planted(
        "a refused lock is told too early",
        Package.CLIENT,
        "if t <= mark:\n",
        "if t <= mark + 1000:\n",
        "A client tries again before it can have seen what it was refused for.",
    ),
    Planted(
        "a flush tells of what came after it",
        Package.CLIENT,
        "self._fail_up_to(max(reached))\n",
        "self._fail_up_to(self._ids.last)\n",
        "Appends that were sent after the flush are reported absent.",
    ),
    Planted(
        "a flush is believed before the feed has come",
        Package.CLIENT,
        "reached = [order for t, order in self._flushed if t <= mark]\n",
        "reached = [order for t, order in self._flushed]\n",
        "An append is reported absent that the feed has not shown yet.",
    ),
    Planted(
        "another client's transaction is taken for one's own",
        Package.CLIENT,
        "if client == own and seq in sent and",
        "if seq in sent and",
        "An append is reported committed as somebody else's transaction.",
    ),
    Planted(
        "request ids begin again with each connection",
        Package.CLIENT,
        "self._connection_seq = connection_seq\n",
        "self._connection_seq = connection_seq\nself.ids.last = -1\n",
        "Two appends of a generation have the same id.",
    ),
    Planted(
        "repetitions are news",
        Package.CLIENT,
        "if record[4] == mark + 1:\n    mark += 1\n",
        "if record[4] >= 0:\n    mark = record[4]\n",
        "A stream hands out a transaction twice.",
    ),
)
