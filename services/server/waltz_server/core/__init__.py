"""The decisions of the server: the class `Partition` and its parts. Pure.

The shell passes inputs to a `Partition` and performs the effects that the partition returns. Start
with the module `partition`. `effects` defines the effects; `store_reports` defines the
reports that a partition gets from its store (folder `replication`). The other parts are in
`access`, `appends` and `reads`.

Some docstrings name a *planted bug*: a wrong change of a line of the code. tests/mutants makes the
change, and a test must fail then. The planted bug shows the failure that the line prevents.
"""
