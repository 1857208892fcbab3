"""Use callbacks: an application applies transactions of the log, and submits its own.

Each run of this program takes words. Several runs may be active at the same time: all apply the
same words in the same order, and no word is taken twice. A real application stores its state and
its marks on disk, as in example 6.

    python examples/05_callbacks.py HOST:PORT WORD...
"""

import sys

import waltz
from waltz.sync import callbacks


class Words(callbacks.Application[str]):
    """The words that are taken. The state is in memory, and each run rebuilds it from the log."""

    def __init__(self) -> None:
        self.taken: list[str] = []

    def get_client_high_water_mark(self, partition: int) -> int:
        """Return -1: no state is stored, so every transaction from the id 0 on is applied."""
        return -1

    def apply_transaction(self, transaction: waltz.Transaction[str]) -> None:
        """Add a word."""
        self.taken.append(transaction.data)


class Take(callbacks.TransactionContext[str]):
    """Takes a word if no program has taken it."""

    def __init__(self, words: Words, word: str) -> None:
        self.words = words
        self.word = word

    def partition_id(self, num_partitions: int) -> int:
        """Return the last partition, which has the transactions of all words."""
        return num_partitions - 1

    def execute(self, builder: callbacks.TransactionBuilder[str]) -> bool:
        """Build the transaction, or return False if the word is taken.

        If another transaction has taken the lock, the client calls this method again.
        """
        if self.word in self.words.taken:
            return False
        builder.data = self.word
        builder.write_locks = [waltz.Lock(self.word, 0)]
        return True

    def on_completion(self, result: bool) -> None:
        """Print the result. The client calls this method once."""
        print(f"{self.word}: {'mine' if result else 'taken'}")


def main(zookeeper: str, words: list[str]) -> None:
    """Take the words that are free."""
    application = Words()
    with callbacks.connect(
        application,
        zookeeper,
        root="/waltz",
        tls=waltz.PLAINTEXT,
        serializer=waltz.TextSerializer(),
        auto_mount=False,
    ) as client:
        # The client applies the transactions of this partition only.
        client.set_partitions([client.log.num_partitions - 1])
        for word in words:
            client.submit(Take(application, word))
            client.flush()


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2:])
