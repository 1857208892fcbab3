"""``waltz local``: run a whole cluster on this machine."""
