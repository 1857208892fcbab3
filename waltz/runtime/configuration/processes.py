"""Settings that several kinds of processes have: their cluster, where they are reached. Pure."""

from __future__ import annotations

from waltz.runtime.configuration.keys import Key, file, port, positive, text


def cluster_keys() -> tuple[Key, ...]:
    """Return the settings that name a cluster, all of which must be set."""
    return (
        Key(
            "zookeeper.connectString",
            text,
            meaning="host:port of the ZooKeeper servers, with commas",
        ),
        Key(
            "zookeeper.sessionTimeout",
            positive,
            meaning="milliseconds without contact after which ZooKeeper takes the process for gone",
        ),
        Key("cluster.root", text, meaning="the cluster's znode"),
    )


def endpoint_keys(prefix: str) -> tuple[Key, ...]:
    """Return the settings of a service below ``prefix`` that are not about its own protocols."""
    return (
        Key(
            f"{prefix}jetty.port", port, None, "HTTP port for health and metrics; not set: no HTTP"
        ),
        Key(f"{prefix}bind.host", text, None, "address to listen on; not set: all"),
        Key(f"{prefix}ports.file", file, None, "file to write the ports in use to, as JSON"),
    )
