"""Partitions, logs, segments, marks and fences, on the `Disk` they are given. Pure."""
