"""Decisions of the client: appends in doubt, feeds, mounts, codecs, values. Pure."""
