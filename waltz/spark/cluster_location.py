"""Find the cluster that the options of a source or sink name. Reads files, the environment.

The options name the cluster by a ``cluster.json`` or by its ZooKeeper. If they name none, it is
found as by `waltz.connect` without arguments: see `waltz.client.location.find_cluster`.
"""

from __future__ import annotations

from dataclasses import asdict

from waltz.client import ClusterNotFound
from waltz.client.location import find_cluster
from waltz.metadata.zookeeper_access import OPEN_ACCESS, ZooKeeperAccess
from waltz.net import PLAINTEXT, TlsConfig
from waltz.runtime.cluster_file import BadClusterFile, read_cluster_file
from waltz.runtime.core.setting_names import DEFAULT_ROOT
from waltz.spark.core.option_values import ClusterOptions, OptionError, ZooKeeperOptions
from waltz.spark.log_reader import ClusterLocation


def locate(options: ClusterOptions) -> ClusterLocation:
    """Return the cluster that the options name, or that is found without them.

    Raises OptionError, and waltz.runtime.configuration.ConfigError for the file that the
    environment variable ``WALTZ_TLS`` names.
    """
    seconds = float(options.timeout_seconds)
    tls = None if options.tls is None else TlsConfig(**asdict(options.tls))
    zookeeper_access = _zookeeper_access(options.zookeeper_access)
    if options.cluster_file is None and options.zookeeper is None:
        try:
            found = find_cluster(None, options.root, tls, access=options.access)
        except ClusterNotFound as problem:
            raise OptionError(
                f"set the option zookeeper (host:port, with root) or cluster (the path of a local "
                f"cluster's cluster.json): {problem}"
            ) from None
        return ClusterLocation(
            found.zookeeper, found.root, found.tls, seconds, zookeeper_access, found.access
        )
    access = options.access or "inside"
    if options.zookeeper is not None:
        root = options.root or DEFAULT_ROOT
        return ClusterLocation(options.zookeeper, root, tls, seconds, zookeeper_access, access)
    assert options.cluster_file is not None
    try:
        described = read_cluster_file(options.cluster_file)
    except BadClusterFile as problem:
        raise OptionError(f"the option cluster names {options.cluster_file}: {problem}") from None
    tls = tls or TlsConfig(enabled=described.tls)
    root = options.root or described.root
    return ClusterLocation(described.zookeeper, root, tls, seconds, zookeeper_access, access)


def _zookeeper_access(options: ZooKeeperOptions | None) -> ZooKeeperAccess:
    """Return how to connect to ZooKeeper: without TLS and a user if ``options`` is None."""
    if options is None:
        return OPEN_ACCESS
    tls = TlsConfig(**asdict(options.tls)) if options.tls.enabled else PLAINTEXT
    return ZooKeeperAccess(tls, options.credentials, options.by_certificate)
