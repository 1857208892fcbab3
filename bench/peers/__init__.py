"""Measure Waltz and its alternatives, in turns on one machine: `python -m bench.peers`.

* `measured`: the figures of a run, and the interface of a peer
* `processes`: starts the processes of a peer, and reads their CPU time
* `waltz_cluster`, `postgresql`, `nats`: the peers, each with three replicas that flush each record
  to disk before it is acknowledged; `nats_load` is the load generator of NATS, in Go
* `report`: makes `bench/RESULTS.md` of the measurements (pure), and `plots` its picture
"""
