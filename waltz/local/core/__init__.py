"""The plan of a local cluster: processes, directories, settings. Pure."""
