"""The storage process: ports, engine thread, files of the operating system, settings, metrics."""
