"""What every process of Waltz runs on: settings, logging, signals, HTTP port, metrics, memory.

Touches the process itself, its settings file and its HTTP port. Knows nothing of logs or replicas.
"""
