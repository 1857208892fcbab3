"""``waltz client``: produce, consume and validate transactions."""
