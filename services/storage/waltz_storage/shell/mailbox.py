"""Pass answers of the engine from any thread to an event loop. Touches a lock."""

from __future__ import annotations

import threading
from collections.abc import Callable

from waltz_storage.core.engine.rounds import Answer


class Mailbox:
    """Passes answers from any thread to the event loop, with one wake-up for many answers.

    ``wake`` schedules a function on the event loop, as ``loop.call_soon_threadsafe`` does.
    """

    def __init__(self, wake: Callable[[Callable[[], None]], object]) -> None:
        self._wake = wake
        self._lock = threading.Lock()
        self._waiting: list[Answer] = []

    def post(self, answers: list[Answer]) -> None:
        """Call the callback of each answer later, on the event loop."""
        with self._lock:
            # If answers wait already, the event loop has been woken for them.
            must_wake = not self._waiting
            self._waiting += answers
        if must_wake and answers:
            self._wake(self.deliver)

    def deliver(self) -> None:
        """Call the callbacks of all waiting answers. Call this only on the event loop."""
        # Usually nothing waits. This test needs no lock: an answer that is posted at this moment
        # wakes the event loop again.
        if not self._waiting:
            return
        with self._lock:
            answers, self._waiting = self._waiting, []
        for reply, answer in answers:
            reply(answer)
