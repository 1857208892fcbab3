"""The decisions of the server: one `Partition` and its parts. Inputs in, effects out. Pure.

`partition` is the entry; `effects` describes how a part has the shell act, `store_reports` how the
store reports to the partition. Folders: `appends`, `replication`, `reads`.
"""
