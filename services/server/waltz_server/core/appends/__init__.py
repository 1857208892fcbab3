"""From an append to its place in the log: decoding, locks, order, batches. Pure."""
