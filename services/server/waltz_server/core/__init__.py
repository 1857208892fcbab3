"""Decisions of the server: one `Partition` and its parts. Pure: events in, effects out."""
