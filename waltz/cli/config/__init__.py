"""``waltz config``: show settings, their values and sources."""
