"""``waltz profile``: names for clusters."""
