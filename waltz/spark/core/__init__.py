"""Decide what Spark reads and writes: options, slices, offsets, decoded columns, ledger. Pure."""
