"""Parts of the client with callbacks that need no threads: contexts, progress, errors. Pure."""
