"""``waltz server``: list servers and change their preferred partitions."""
