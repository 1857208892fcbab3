"""The application's side of callbacks: contexts, progress, errors. Pure: no threads, no I/O."""
