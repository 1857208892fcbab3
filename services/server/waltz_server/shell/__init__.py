"""Perform the effects of the core: connections, ZooKeeper, HTTP, process. No decisions here."""
