"""``waltz disk``: read the files of a stopped storage. Never writes to them."""
