"""A whole cluster on this machine: its processes, their directories, and ZooKeeper with them."""
