"""The client library for programs without asyncio: the same names and errors, without ``await``.

* `client`: `SyncClient`; `stream`: `SyncStream` and `SyncBatchStream`
* `blocking`: makes a blocking method from a coroutine method of the asyncio client
* `event_loop`: an event loop on a separate thread
* `submitting`: runs the ``build`` of ``submit`` on the thread that called ``submit``
* `callbacks`: a client that applies every transaction to an application; it uses this package

This program appends a transaction, and reads the log up to this transaction:

    import waltz.sync

    with waltz.sync.connect("127.0.0.1:2181", root="/waltz") as client:
        tx = client.append(0, b"hello")
        for transaction in client.stream(0, until=tx, data=True):
            print(transaction.id, transaction.data)

Any number of threads may call a client at the same time. Each client starts one thread, which runs
the event loop of the asyncio client.

A client belongs to the process that opened it. In a forked child every call raises `WrongProcess`,
and the client of the parent is not affected. Open another client in the child.

A process may end without closing its client. Then the outcomes of open appends are unknown: each
may or may not be in the log.
"""

from waltz.sync.client import SyncClient, connect, opened
from waltz.sync.event_loop import WrongProcess, WrongThread
from waltz.sync.stream import SyncBatchStream, SyncStream

__all__ = [
    "SyncBatchStream",
    "SyncClient",
    "SyncStream",
    "WrongProcess",
    "WrongThread",
    "connect",
    "opened",
]
