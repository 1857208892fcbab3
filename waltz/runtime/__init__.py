"""The parts that every process needs: settings, logging, signals, HTTP port, metrics, memory.

Touches the process itself, its settings file and its HTTP port. Knows nothing about partitions,
logs and replicas.

* `core`: types of values, names of settings, timers, metrics in JSON (pure)
* `configuration`: typed settings from a YAML file and environment variables
* `process`: logging, the event loop, signals
* `service`: the command line of the server and the storage
* `metrics`: the metrics of a process; `http`: the HTTP port, which serves them
* `cluster_file`: reads the file that describes a local cluster
* `memory`: sets how the C library keeps freed memory
* `version`: the version of the installed software
"""
