"""``waltz debug``: collect what is needed to understand a fault."""
