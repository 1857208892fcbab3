"""Decode received appends, check their locks and decide their order in the log. Pure."""
