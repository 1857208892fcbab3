"""The decisions of the server: the class `Partition` and its parts. Pure.

The shell passes inputs to a `Partition` and performs the effects that the partition returns. Begin
to read at `partition`. `effects` defines the effects; `store_reports` defines what the store of a
partition (folder `replication`) reports to it. The other parts are in `appends` and `reads`.
"""
