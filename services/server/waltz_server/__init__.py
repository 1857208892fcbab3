"""The Waltz server: orders, locks and replicates the appends of its partitions, and feeds clients."""
