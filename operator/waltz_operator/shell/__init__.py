"""Act for the planner: Kubernetes API, ZooKeeper, storages, events, leader election."""
