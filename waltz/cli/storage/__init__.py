"""``waltz storage``: storages, their partitions and replicas."""
