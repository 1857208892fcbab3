"""``waltz log``: append, read, export and import transactions."""
