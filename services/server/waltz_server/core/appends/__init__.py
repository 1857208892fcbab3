"""From a received append to its place in the log: codec, locks, order, batches. Pure."""
