"""The messages and results that the pure parts of the client hand to the shell. Pure.

A pure part takes one input per call and collects its effects in one `Effects`. After each call the
shell takes them: it sends the messages on the partition's connection, in their order, and returns
the results to the callers, in their order. No part returns effects, and no part calls back.
"""

from __future__ import annotations

from typing import Generic, TypeVar

from waltz.protocol.client_server import Message

R = TypeVar("R")


class Effects(Generic[R]):
    """The messages to send and the results to return, collected until the shell takes them.

    Without a connection the shell drops the messages: each part sends the messages that are still
    needed again when the next connection is attached.
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
