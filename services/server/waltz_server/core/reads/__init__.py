"""Feeds and reads, which return the log to clients, from memory or from replicas. Pure."""
