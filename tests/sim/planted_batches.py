"""Bugs to plant into batches of appends: the simulator must catch each of them."""

from __future__ import annotations

from tests.sim.planting import Package, Planted

BATCH_BUGS = (
    Planted(
        "a batch is taken apart",
        Package.SERVER,
        "self._queue.add_batch(batch)\n",
        "self._queue.add(batch.peer, list(batch.appends))\n",
        "Its appends are decided one by one, and wait for each other's locks.",
    ),
    Planted(
        "a batch meets its own locks",
        Package.SERVER,
        "if append.checked and append.client_mark < taken_by:\n",
        "if not set(taken).isdisjoint(append.checked) or append.client_mark < taken_by:\n",
        "An append is refused for a lock that its neighbour takes.",
    ),
    Planted(
        "a batch waits for nobody",
        Package.SERVER,
        "if any(locks.any_open(slots) for slots in _slots_of(batch)):\n",
        "if False:\n",
        "Its appends get in together with others under the same lock.",
    ),
    Planted(
        "a batch is not checked",
        Package.SERVER,
        "if append.checked and append.client_mark < taken_by:\n",
        "if append.checked and append.client_mark < taken_by - 1_000_000:\n",
        "Its appends get in under locks that others have taken.",
    ),
    Planted(
        "what is refused of a batch keeps its locks",
        Package.SERVER,
        "taken += append.taken\ngranted.append(append)\n",
        "granted.append(append)\n"
        "taken = [slots for each in batch.appends for slots in each.taken]\n",
        "Nobody ever gets them again.",
    ),
    Planted(
        "outcomes shifted by one",
        Package.SERVER,
        "self._open_appends[append] = (open_batch, position)\n",
        "self._open_appends[append] = (open_batch, (position + 1) % len(batch.appends))\n",
        "Each append is told what became of the one before.",
    ),
    Planted(
        "a batch is said to be in one place",
        Package.SERVER,
        "self._settle(append, BatchedOutcome(OutcomeKind.COMMITTED, first_id + position))\n",
        "self._settle(append, BatchedOutcome(OutcomeKind.COMMITTED, first_id))\n",
        "All its appends are told the first one's transaction id.",
    ),
    Planted(
        "what is to be looked up is called absent",
        Package.SERVER,
        "self._batches.ended(appends, OutcomeKind.UNKNOWN)\n",
        "self._batches.ended(appends, OutcomeKind.ABSENT)\n",
        "An append is reported absent that another owner has found in the log.",
    ),
    Planted(
        "a batch that waits outlives its generation",
        Package.SERVER,
        "self._waiting.keep(lambda item: _",
        "self._waiting.keep(lambda item: isinstance(item, AppendBatch) or _",
        "It gets in although its client was told otherwise, or under locks of another time.",
    ),
    Planted(
        "the rest of a lost batch goes on",
        Package.SERVER,
        "while batch is not None and queue and queue[0].batch == batch:\n",
        "while batch is not None and queue and queue[0].batch is failed:\n",
        "A batch is in the log without its beginning.",
    ),
    Planted(
        "refusals of a batch go to their neighbours",
        Package.CLIENT,
        "for seq, outcome in enumerate(message.outcomes, first):\n",
        "for seq, outcome in enumerate(message.outcomes, first + 1):\n",
        "The client takes an append for refused that is in the log.",
    ),
)
