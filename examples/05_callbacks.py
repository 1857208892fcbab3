"""The callback model: an application that applies the log, and contexts that it submits.

Several of these programs may run side by side: all see the same words in the same order, and no
word is taken twice. A real application keeps its state, and so its marks, on disk: example 6.

    python examples/05_callbacks.py HOST:PORT WORD...
"""

import sys

import waltz
from waltz.sync import callbacks


class Words(callbacks.Application[str]):
    """The words taken so far; its state is in memory, and comes anew from the log each time."""

    def __init__(self) -> None:
        self.taken: list[str] = []

    def get_client_high_water_mark(self, partition: int) -> int:
        """Nothing is kept: everything is to be applied."""
        return -1

    def apply_transaction(self, transaction: waltz.Transaction[str]) -> None:
        """Take note of a word."""
        self.taken.append(transaction.data)


class Take(callbacks.TransactionContext[str]):
    """Takes a word unless it is taken."""

    def __init__(self, words: Words, word: str) -> None:
        self.words = words
        self.word = word

    def partition_id(self, num_partitions: int) -> int:
        """All words are in the last partition."""
        return num_partitions - 1

    def execute(self, builder: callbacks.TransactionBuilder[str]) -> bool:
        """Decide by the state; should somebody be quicker, decide again."""
        if self.word in self.words.taken:
            return False
        builder.data = self.word
        builder.write_locks = [waltz.Lock(self.word, 0)]
        return True

    def on_completion(self, result: bool) -> None:
        """Told once."""
        print(f"{self.word}: {'mine' if result else 'taken'}")


def main(zookeeper: str, words: list[str]) -> None:
    """Take words."""
    application = Words()
    with callbacks.connect(
        application,
        zookeeper,
        root="/waltz",
        tls=waltz.PLAINTEXT,
        serializer=waltz.TextSerializer(),
        auto_mount=False,
    ) as client:
        client.set_partitions([client.log.num_partitions - 1])
        for word in words:
            client.submit(Take(application, word))
            client.flush()


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2:])
