"""The client library for programs without asyncio: the same names and errors, and no ``await``.

* `event_loop`: an event loop on a thread of its own
* `submitting`: lets the thread that called `submit` build what is submitted
* `client`, `stream`: the facade itself

::

    import waltz.sync

    with waltz.sync.connect("127.0.0.1:2181", root="/waltz") as client:
        tx = client.append(0, b"hello")
        for transaction in client.stream(0, until=tx, data=True):
            print(transaction.id, transaction.data)

Any thread may call, several at a time. Each client has one thread of its own, on which everything
that it does runs.

A client belongs to the process that opened it: in a forked child every call raises
`WrongProcess`, and the parent goes on undisturbed. Open another one there. A process that ends
without having closed its client loses nothing but the answers it was waiting for: what was sent
may be in the log, as with AppendUncertain.
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
