"""Perform the effects of the core: sockets, ZooKeeper, timers, HTTP, process. No decisions."""
