"""Append a transaction and read it: python examples/01_hello.py HOST:PORT (of the ZooKeeper)."""

import sys

import waltz.sync

with waltz.sync.connect(sys.argv[1], root="/waltz", tls=waltz.PLAINTEXT) as client:
    tx = client.append(0, b"hello")
    for transaction in client.stream(0, after=tx - 1, until=tx, data=True):
        print(transaction.id, transaction.data)
