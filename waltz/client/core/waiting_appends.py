"""The appends of one partition that wait until the partition is mounted. Pure."""

from __future__ import annotations

from collections import deque
from collections.abc import Set
from typing import NamedTuple

from waltz.client.core.append_values import Append, AppendResult, Outcome


class WaitingAppends(NamedTuple):
    """One append, or the appends of one batch, each with the token of its caller."""

    tokens: tuple[object, ...]
    appends: tuple[Append, ...]
    is_batch: bool


class WaitingQueue:
    """The waiting appends, in the order of their calls. None of them was sent.

    Appends leave the queue when they are sent, when their callers do not wait any longer, or when
    an outcome is known that concerns all of them.
    """

    def __init__(self) -> None:
        self._waiting: deque[WaitingAppends] = deque()

    def __bool__(self) -> bool:
        return bool(self._waiting)

    def add(self, waiting: WaitingAppends) -> None:
        """Add an append or a batch at the end."""
        self._waiting.append(waiting)

    def take_all(self) -> list[WaitingAppends]:
        """Remove and return all entries, in their order."""
        taken = list(self._waiting)
        self._waiting.clear()
        return taken

    def withdraw(self, tokens: Set[object]) -> list[AppendResult]:
        """Remove the appends of ``tokens``, and all other appends of the same batches.

        A batch is one message, so it cannot be sent without some of its appends. Return a result
        with the outcome UNSENT for each append that was removed.
        """
        withdrawn = [entry for entry in self._waiting if not tokens.isdisjoint(entry.tokens)]
        for entry in withdrawn:
            self._waiting.remove(entry)
        return [
            AppendResult(token, Outcome.UNSENT) for entry in withdrawn for token in entry.tokens
        ]

    def settle_all(self, outcome: Outcome, number: int = -1) -> list[AppendResult]:
        """Remove all appends; return a result with ``outcome`` and ``number`` for each.

        `AppendResult` says what the number is for each outcome.
        """
        return [
            AppendResult(token, outcome, number)
            for entry in self.take_all()
            for token in entry.tokens
        ]
