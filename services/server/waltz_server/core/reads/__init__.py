"""FeedSchedule and reads: what clients get of the log, from caches or replicas. Pure."""
