"""``waltz cluster``: create, show, verify and delete a cluster."""
