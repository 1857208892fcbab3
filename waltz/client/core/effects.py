"""The messages to send and the results to return, which the client's pure classes produce. Pure.

A pure class handles one input per call, and collects its effects in an `Effects`. After each call,
the code around it (the *shell*) takes the effects. It sends the messages on the partition's
connection, and passes the results to the callers, both in the order in which they were collected. A
pure class calls no callback. A few methods, such as `PartitionAppends.withdraw`, return results
instead of collecting them; the shell must pass on these results, too.
"""

from __future__ import annotations

from typing import Generic, TypeVar

from waltz.protocol.client_server import Message

R = TypeVar("R")


class Effects(Generic[R]):
    """The messages to send and the results to return, collected until the shell takes them.

    Without a connection, the shell drops the messages. When a connection is attached, the pure
    class produces again those messages that are still needed.
    """

    __slots__ = ("messages", "results")

    def __init__(self) -> None:
        self.messages: list[Message] = []
        self.results: list[R] = []

    def take_messages(self) -> list[Message]:
        """Return the messages that were collected, and start a new list."""
        messages = self.messages
        if messages:
            self.messages = []
        return messages

    def take_results(self) -> list[R]:
        """Return the results that were collected, and start a new list."""
        results = self.results
        if results:
            self.results = []
        return results
