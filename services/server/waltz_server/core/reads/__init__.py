"""Return the log to clients, as feeds and as reads, from memory or from replicas. Pure."""
