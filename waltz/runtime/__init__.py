"""The parts that every process needs: settings, logging, signals, HTTP port, metrics, memory.

Touches the process itself, its settings file and its HTTP port; has no code of logs or replicas.

* `core`: types of values, names of settings, timers, metrics in JSON (pure)
* `configuration`: typed settings from a YAML file and environment variables
* `process`: logging, the event loop, signals; `service`: the command line of a process
* `http`, `metrics`: the HTTP port, and the metrics that it shows
* `cluster_file`: the file that describes a local cluster; `memory`: settings of the C library
"""
