"""A whole cluster on this machine: its processes, their directories, and ZooKeeper with them.

* `plan`: what a cluster consists of, what its processes are told (pure); `ports`: free ports
* `zookeeper`, `child`: single processes; `cluster`: `LocalCluster`, all of them together
* `supervisor`: runs a `LocalCluster` until it is told to stop, and takes orders meanwhile
* `orders`: what a supervisor is told by others
"""

from waltz.local.child import ProcessFailed
from waltz.local.cluster import (
    ClusterRunning,
    ClusterUnhealthy,
    LocalCluster,
    UnknownProcess,
    wanted_shape,
)
from waltz.local.core.plan import Layout, PlanError, Shape
from waltz.local.orders import (
    NotRunning,
    Order,
    OrderFailed,
    end_left_over,
    give_order,
    read_description,
    wait_until_down,
)
from waltz.local.ports import NoFreePorts
from waltz.local.supervisor import supervise
from waltz.local.zookeeper import ZooKeeperNotStarted

__all__ = [
    "ClusterRunning",
    "ClusterUnhealthy",
    "Layout",
    "LocalCluster",
    "NoFreePorts",
    "NotRunning",
    "Order",
    "OrderFailed",
    "PlanError",
    "ProcessFailed",
    "Shape",
    "UnknownProcess",
    "ZooKeeperNotStarted",
    "end_left_over",
    "give_order",
    "read_description",
    "supervise",
    "wait_until_down",
    "wanted_shape",
]
