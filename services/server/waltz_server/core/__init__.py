"""The decisions of the server: the class `Partition` and its parts. Pure.

The shell passes inputs to a `Partition` and performs the effects that the partition returns. Start
with the module `partition`. `effects` defines the effects. A partition passes its appends to its
*store*, the part that replicates them (folder `replication`). `store_reports` defines what the
store reports back. The folders `appends` and `reads` have the other parts of a partition; `access`
decides what a client may do. docs/concepts.md explains the terms, such as mark, store session,
generation and feed.

Some docstrings name a *planted bug*: a wrong change of a line of the code. tests/mutants makes the
change, and a test must fail then. The planted bug shows the failure that the line prevents.
"""
