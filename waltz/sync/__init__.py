"""The client library for programs without asyncio: the same names and errors, without ``await``.

* `client`, `stream`: `SyncClient` and `SyncStream`; `blocking` makes their methods
* `event_loop`: an event loop on a separate thread
* `submitting`: runs ``build`` on the thread that called ``submit``
* `callbacks`: an application that applies every transaction, on top of this

A program appends a transaction and streams the log up to it:

    import waltz.sync

    with waltz.sync.connect("127.0.0.1:2181", root="/waltz") as client:
        tx = client.append(0, b"hello")
        for transaction in client.stream(0, until=tx, data=True):
            print(transaction.id, transaction.data)

Any number of threads may call a client at the same time. Each client works on its own thread.

A client belongs to the process that opened it. In a forked child every call raises `WrongProcess`,
and the client of the parent is not affected: open another client in the child.

A process that ends without closing its client loses only the answers that it was waiting for.
Appends that were sent may be in the log, as after AppendUncertain.
"""

from waltz.sync.client import SyncClient, connect, opened
from waltz.sync.event_loop import WrongProcess, WrongThread
from waltz.sync.stream import SyncStream

__all__ = [
    "SyncClient",
    "SyncStream",
    "WrongProcess",
    "WrongThread",
    "connect",
    "opened",
]
