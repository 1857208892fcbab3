"""``waltz disk``: read and check the files of a stopped storage. Only ``flatten`` writes them."""
