"""Transactions with callbacks: the programming model of Waltz 0.13.2, on threads.

* `application`, `core.context`: the classes that an application derives from
* `client`: `CallbackClient`, opened by `connect`; `partition`: one active partition
* `core.progress`: which context a transaction belongs to, and which callbacks were called
* `open_contexts`: the bound on open contexts; `workers`: the threads that call the application
* `core.metrics`, `core.errors`

An application computes a state from the log, and keeps the mark up to which it has done so. It
*applies* every transaction of its partitions, its own and those of other clients, in order:

    class Counter(callbacks.Application[bytes]):
        def __init__(self) -> None:
            self.seen: list[bytes] = []

        def get_client_high_water_mark(self, partition: int) -> int:
            return -1                                    # no state is kept: apply everything

        def apply_transaction(self, transaction: waltz.Transaction[bytes]) -> None:
            self.seen.append(transaction.data)

    class Add(callbacks.TransactionContext[bytes]):
        def execute(self, builder: callbacks.TransactionBuilder[bytes]) -> bool:
            builder.data = b"one more"
            builder.write_locks = [waltz.Lock("counter", 1)]
            return True                                  # False: there is nothing to append

    with callbacks.connect(Counter(), "127.0.0.1:2181", root="/waltz") as client:
        client.submit(Add())
        client.flush()

For each active partition:

* Every transaction after the application's mark is applied, in order, each once.
* ``execute`` decides by a state that reflects at least the mark against which its locks are
  checked. If another client took a lock after that mark, ``on_lock_failure`` is called. When the
  state has caught up, ``execute`` is called again, on a retry thread. This repeats until no lock
  was taken.
* The end of a context is reported once. ``on_completion(True)`` is called just before its
  transaction is applied and ``on_application`` just after; ``on_completion(False)`` when
  ``execute`` returned False; ``on_exception`` when ``execute`` raised or the append failed and is
  not retried. One of these errors is AppendUncertain: the transaction may be in the log, and is
  then applied like one of another client.
* An error in ``apply_transaction`` is reported to ``uncaught_exception``. Then the partition is
  mounted again and the same transaction is applied again, until it succeeds. ``on_completion`` is
  not repeated.
* Partitions do not wait for each other. The calls of one partition's feed never overlap. Calls of
  ``execute`` after a lock failure come from the retry threads and may overlap with them.

Each active partition has a separate connection to its server. So a partition whose application is
slow or fails does not delay the others.
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
