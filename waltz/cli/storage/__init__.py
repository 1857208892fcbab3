"""``waltz storage``: manage storages, their partitions and replicas."""
