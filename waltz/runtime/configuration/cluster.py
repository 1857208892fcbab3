"""The settings that name a cluster. Touches nothing."""

from __future__ import annotations

from waltz.runtime.configuration.settings import Positive, Text, setting
from waltz.runtime.configuration.zookeeper import ZooKeeperSettings
from waltz.runtime.core.setting_names import DEFAULT_ROOT

# The meanings of two settings, which the settings of the command line have, too.
ZOOKEEPER = "host:port of the ZooKeeper servers, separated by commas"
CLUSTER_ROOT = "the cluster's znode"


class ClusterSettings(ZooKeeperSettings):
    """The settings that name a cluster, and the timeout of its sessions.

    ``zookeeper.connectString`` and ``zookeeper.sessionTimeout`` are required.
    """

    zookeeper: Text = setting("zookeeper.connectString", ZOOKEEPER)
    session_timeout_ms: Positive = setting(
        "zookeeper.sessionTimeout",
        "milliseconds without contact after which ZooKeeper ends the session of this process",
    )
    cluster_root: Text = setting("cluster.root", CLUSTER_ROOT, DEFAULT_ROOT)
