"""Measure Waltz and its alternatives, in turns on one machine: `python -m bench.peers`.

* `measured`: the figures of a run, and the interface of a peer
* `processes`, `load_program`: start the processes of a peer, and talk to its load generator
* `waltz_cluster`, `postgresql`, `nats`, `kafka`, `etcd`: the peers, each with three replicas that
  flush each record to disk before it is acknowledged
* `nats_load`, `etcd_load`, `kafka_load`: load generators in Go and Java, each by the system's own
  client; `go_programs`, `kafka_jars` and `postgresql_programs` find or build the programs
* `measuring`: runs the peers in turns, then the followers of Waltz
* `report`: makes `bench/RESULTS.md` of the measurements (pure), and `plots` its pictures
"""
