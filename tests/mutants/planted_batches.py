"""Bugs to plant into batches of appends, hunted by simulated seeds or by tests."""

from __future__ import annotations

from tests.mutants.planting import Package, Planted, nodes

BATCH_BUGS = (
    Planted(
        "a batch is taken apart",
        Package.SERVER,
        "self._queue.add_batch(batch)\n",
        "self._queue.add(batch.peer, list(batch.appends))\n",
        "Its appends are decided one by one, and conflict with each other's locks.",
    ),
    Planted(
        "a batch conflicts with its own locks",
        Package.SERVER,
        "if append.checked and latest > append.client_mark:\n",
        "if not set(taken).isdisjoint(append.checked) or latest > append.client_mark:\n",
        "An append is refused for a lock that another append of its batch takes.",
    ),
    Planted(
        "a batch does not wait for busy locks",
        Package.SERVER,
        "if any(locks.any_busy(slots) for slots in _slots_of(batch)):\n",
        "if False:\n",
        "Its appends are committed together with others under the same lock.",
    ),
    Planted(
        "a batch is not checked",
        Package.SERVER,
        "if append.checked and latest > append.client_mark:\n",
        "if append.checked and latest > append.client_mark + 1_000_000:\n",
        "Its appends are committed under locks that others have taken.",
    ),
    Planted(
        "refused appends of a batch keep their locks",
        Package.SERVER,
        "taken += append.taken\ngranted.append(append)\n",
        "granted.append(append)\n"
        "taken = [slots for each in batch.appends for slots in each.taken]\n",
        "No append can take them again.",
        nodes(
            "unit/server/test_server_append_batches.py::"
            "test_refused_append_of_a_batch_does_not_refuse_the_others"
        ),
    ),
    Planted(
        "outcomes shifted by one",
        Package.SERVER,
        "self._open_appends[append] = (open_batch, position)\n",
        "self._open_appends[append] = (open_batch, (position + 1) % len(batch.appends))\n",
        "Each append gets the outcome of the one before it.",
    ),
    Planted(
        "all appends of a batch get one transaction id",
        Package.SERVER,
        "self._settle(append, BatchedOutcome(OutcomeKind.COMMITTED, first_id + position))\n",
        "self._settle(append, BatchedOutcome(OutcomeKind.COMMITTED, first_id))\n",
        "All its appends are answered with the first one's transaction id.",
    ),
    Planted(
        "an append to be looked up is reported absent",
        Package.SERVER,
        "self._batches.ended(appends, OutcomeKind.UNKNOWN)\n",
        "self._batches.ended(appends, OutcomeKind.ABSENT)\n",
        "An append is reported absent that another owner has found in the log.",
        nodes(
            "unit/server/test_server_append_batches.py::"
            "test_new_generation_fails_waiting_batches_and_leaves_sent_ones_open"
        ),
    ),
    Planted(
        "an append that waits outlives its generation",
        Package.SERVER,
        "ungranted = self._waiting.clear()\n",
        "ungranted: list[_Item] = []\n",
        "It is committed although its client was answered otherwise, or under older locks.",
        nodes(
            "unit/server/test_server_append_batches.py::test_new_generation_fails_waiting_batches_and_leaves_sent_ones_open"
        ),
    ),
    Planted(
        "the rest of a failed batch is appended",
        Package.SERVER,
        "while batch is not None and queue and queue[0].batch == batch:\n",
        "while batch is not None and queue and queue[0].batch is failed:\n",
        "A batch is in the log without its beginning.",
        nodes(
            "unit/server/test_server_store.py::test_batch_cut_in_two_by_a_broken_session_is_a_prefix_in_the_log"
        ),
    ),
    Planted(
        "outcomes of a batch are assigned to the next append",
        Package.CLIENT,
        "for seq, outcome in enumerate(message.outcomes, first):\n",
        "for seq, outcome in enumerate(message.outcomes, first + 1):\n",
        "The client counts an append as refused that is in the log.",
    ),
    Planted(
        "a batch takes one append too many",
        Package.SERVER,
        "if appends and size > limits.batch_bytes:\n",
        "if appends and size > limits.batch_bytes + 100:\n",
        "A batch exceeds its bytes, which could exceed the storages' frames.",
        nodes(
            "unit/server/test_server_log_tail.py::test_batch_takes_as_many_appends_as_it_may_have"
        ),
    ),
    Planted(
        "an append of any size is accepted",
        Package.SERVER,
        "if size <= self._max_record_bytes:\n",
        "if size >= 0:\n",
        "Every replica refuses its record, so that the partition never opens again.",
        nodes(
            "unit/server/test_server_append_limit.py::test_too_large_append_fails_and_the_session_continues",
            "unit/server/test_server_append_limit.py::test_batch_with_a_too_large_append_is_absent",
        ),
    ),
    Planted(
        "append locks are not counted",
        Package.PROTOCOL,
        " + len(append.append_locks)",
        "",
        "One request with many locks stops a server.",
        nodes(
            "unit/protocol/test_protocol_messages.py::test_append_batch_over_its_limits_is_refused"
        ),
    ),
)
