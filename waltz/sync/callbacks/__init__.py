"""Transactions with callbacks: the programming model of Waltz 0.13.2, on threads.

An *application* computes a state from the log. It *applies* every transaction of its partitions in
order, its own and those of other clients, and keeps the *mark*: the last transaction that it has
applied. To append a transaction, it submits a *context*, which builds the transaction and has
callbacks for its end:

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

A partition is *active* while the client applies its log. All partitions are active, unless
``connect`` got ``auto_mount=False``: then `CallbackClient.set_partitions` chooses the active ones.
A context appends to the partition that its method ``partition_id`` returns, by default 0.

For each active partition:

* Every transaction after the application's mark is applied once, in order.
* ``execute`` builds a transaction from the state of the application. ``submit`` calls ``execute``
  on the calling thread. The locks of the transaction are checked against the mark that the
  application had before this call. If another transaction has taken a lock after that mark,
  ``on_lock_failure`` is called. When the application has applied the other transaction, ``execute``
  is called again, on a retry thread. This repeats until no other transaction has taken a lock.
* The end of a context is reported once. ``on_completion(True)`` is called just before its
  transaction is applied, and ``on_application`` just after. ``on_completion(False)`` is called when
  ``execute`` returned False. ``on_exception`` is called when ``execute`` raised an error, or the
  append failed and is not retried. If the error is AppendUncertain, the transaction may be in the
  log; then it is applied like a transaction of another client. If the partition becomes inactive or
  the client is closed before a transaction in the log is applied, ``on_completion(True)`` is called
  without ``on_application``.
* An error in ``apply_transaction`` is passed to ``uncaught_exception``. Then the partition is
  mounted again and the same transaction is applied again, until that succeeds. ``on_completion`` is
  not repeated.
* Partitions do not wait for each other. The calls of ``apply_transaction``,
  ``on_completion(True)`` and ``on_application`` for one partition never overlap. But ``execute``
  runs on other threads and may overlap with these calls: protect a state that both use, for example
  by a lock.

Each active partition has a stream of its own. So a partition whose application is slow or fails
does not delay the others.

The modules:

* `application`: the class of applications; `core.context`: the class of contexts
* `client`: `CallbackClient`; `connecting`: `connect`, which opens one; `partition`: one active
  partition
* `core.progress`: which context a transaction belongs to, and which callbacks were called
* `open_contexts`: limits the number of open contexts
* `workers`: the threads that call the application; `calling`: reports the errors of callbacks
* `core.metrics`, `core.errors`: metrics and errors, in addition to those of the client
"""

from waltz.sync.callbacks.application import Application
from waltz.sync.callbacks.client import CallbackClient
from waltz.sync.callbacks.connecting import connect
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
