"""The decisions of the server: the class `Partition` and its parts. Pure.

The shell passes inputs to a `Partition` and performs the effects that the partition returns. Start
with the module `partition`. `effects` defines the effects; `store_reports` defines what the store
of a partition (folder `replication`) reports to it. The other parts are in `appends` and `reads`.

Some docstrings name a *planted bug*: a change of the code, in tests/mutants, that the tests find.
The planted bug shows the failure that a line of the code prevents.
"""
