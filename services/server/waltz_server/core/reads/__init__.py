"""Feeds and reads: what clients get of the log, from memory or from replicas. Pure."""
