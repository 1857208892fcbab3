"""The console at work: polls the cluster, reads the log, serves HTTP. Touches the network."""
