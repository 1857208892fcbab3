"""Transactions with callbacks: the programming model of Waltz 0.13.2, on threads.

* `context`: what an application submits; `application`: what it is told (both to be subclassed)
* `progress`: which context a transaction belongs to, what was told already (pure)
* `in_flight`: how many there may be; `workers`: the threads that call the application
* `partition`: one active partition; `client`: `CallbackClient`, opened by `connect`
* `measures`, `errors`

An application keeps a state that follows from the log, and the mark up to which it does. It
*applies* every transaction of its partitions, its own and those of others, in order::

    class Counter(callbacks.Application[bytes]):
        def __init__(self) -> None:
            self.seen: list[bytes] = []

        def get_client_high_water_mark(self, partition: int) -> int:
            return -1                                    # kept nowhere: everything once more

        def apply_transaction(self, transaction: waltz.Transaction[bytes]) -> None:
            self.seen.append(transaction.data)

    class Add(callbacks.TransactionContext[bytes]):
        def execute(self, builder: callbacks.TransactionBuilder[bytes]) -> bool:
            builder.data = b"one more"
            builder.write_locks = [waltz.Lock("counter", 1)]
            return True                                  # False: there is nothing to do

    with callbacks.connect(Counter(), "127.0.0.1:2181", root="/waltz") as client:
        client.submit(Add())
        client.flush()

What is promised, for each active partition:

* Every transaction after the application's mark is applied, in order, each once.
* ``execute`` decides by a state that reflects at least the mark its locks are checked against. If a
  lock was taken after that: ``on_lock_failure``, and once the state has caught up ``execute``
  again, on a retry thread, as often as it takes.
* A context's end is told once: ``on_completion(True)`` just before its transaction is applied and
  ``on_application`` just after; ``on_completion(False)`` when ``execute`` had nothing to do;
  ``on_exception`` when it raised, or when the append failed for good. Among these is
  AppendUncertain: it may be in the log, and then is applied as anybody's.
* An ``apply_transaction`` that raises is reported to ``uncaught_exception``; the feed is mounted
  anew, and the same transaction is applied again, until it does not raise. ``on_completion`` is not
  repeated.
* Partitions do not wait for each other. Calls about one partition's feed never overlap; calls on
  contexts that are tried again come from the retry threads and may.

Each active partition has a connection of its own to its server, so that one whose application is
slow or fails holds up nobody else.
"""

from waltz.sync.callbacks.application import Application
from waltz.sync.callbacks.client import CallbackClient, connect
from waltz.sync.callbacks.core.context import TransactionBuilder, TransactionContext
from waltz.sync.callbacks.core.errors import DataMissing, InCallback, PartitionInactive, TimedOut

__all__ = [
    "Application",
    "CallbackClient",
    "DataMissing",
    "InCallback",
    "PartitionInactive",
    "TimedOut",
    "TransactionBuilder",
    "TransactionContext",
    "connect",
]
