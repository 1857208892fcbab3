"""Run the store sessions of a partition: recovery, appends to a quorum, appends in doubt. Pure.

`store_partition` is the entry: the *store* of a partition, which runs one `store_session` after
another. `session_recovery` explains the terms of a recovery, docs/concepts.md those of a session.
"""
