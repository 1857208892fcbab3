"""Run a whole cluster on this machine: processes, their directories, and ZooKeeper.

* `core.plan`: the processes of a cluster and their settings (pure); `plan_file`: the plan in the
  directory of a cluster; `ports`: free ports
* `zookeeper` and `child` run one process; `cluster` has `LocalCluster`, which runs all processes
* `directory` locks the directory of a cluster and writes its description
* `supervisor` runs a `LocalCluster` until a signal or a request stops it; so the *supervisor* is
  the process that has started all others
* `logs` reads the logs of the processes
* `control` sends requests to a supervisor from another process
* `command_lines` decides whether a process belongs to a cluster, for processes that still run after
  their supervisor has died
"""

from waltz.local.child import ProcessFailed
from waltz.local.cluster import ClusterUnhealthy, LocalCluster, UnknownProcess
from waltz.local.control import (
    Control,
    ControlFailed,
    NotRunning,
    end_left_over,
    read_description,
    read_running,
    request_stop,
    send_control,
    wait_until_down,
)
from waltz.local.core.plan import ClusterLayout, PlanError, Shape
from waltz.local.directory import ClusterRunning
from waltz.local.logs import last_lines, local_logs, new_lines, open_logs
from waltz.local.plan_file import make_directory, wanted_shape
from waltz.local.ports import NoFreePorts
from waltz.local.supervisor import UP, supervise
from waltz.local.zookeeper import ZooKeeperNotStarted

__all__ = [
    "UP",
    "ClusterLayout",
    "ClusterRunning",
    "ClusterUnhealthy",
    "Control",
    "ControlFailed",
    "LocalCluster",
    "NoFreePorts",
    "NotRunning",
    "PlanError",
    "ProcessFailed",
    "Shape",
    "UnknownProcess",
    "ZooKeeperNotStarted",
    "end_left_over",
    "last_lines",
    "local_logs",
    "make_directory",
    "new_lines",
    "open_logs",
    "read_description",
    "read_running",
    "request_stop",
    "send_control",
    "supervise",
    "wait_until_down",
    "wanted_shape",
]
