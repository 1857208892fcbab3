"""The parts that every process needs: settings, logging, signals, HTTP port, metrics, memory.

Touches the process itself, its settings file, its HTTP port and the user's profiles. The
package has no code about transactions or replicas.

* `core`: types of values, names of settings, timers, metrics in JSON (pure)
* `configuration`: typed settings from a YAML file and environment variables
* `process`: logging, the event loop, signals
* `service`: the command line of the server and the storage
* `one_line`, `one_line_parser`: command lines that print each error as one line
* `metrics`: the metrics of a process; `http`: the HTTP port, which serves them
* `cluster_file`: reads the file that describes a local cluster; `profiles`: a user's names for
  clusters
* `memory`: tunes the C library's memory and the garbage collector
* `extras`: names the extra of a library that is not installed
* `version`: the version of the installed software; `version_option`: the option ``--version``
"""
