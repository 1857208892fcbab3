"""Extend the simulated world by pods of servers and by addresses of Services.

The controller of Deployments starts a new server before it stops an old one. Services of type
NodePort get their ports at once, those of type LoadBalancer an address when `balancers_work`.
"""

from __future__ import annotations

from copy import deepcopy
from typing import Any

from typing_extensions import override

from tests.support.operator_world import World, Znodes, cluster_resource, pool_resource
from waltz_operator.core import names
from waltz_operator.core.names import SLOT_LABEL, Component
from waltz_operator.core.objects import Manifest, ObjectKey
from waltz_operator.core.objects.server import MAX_SURGE
from waltz_operator.core.outside_steps import (
    DeleteOutsideAddresses,
    SetSlot,
    WriteOutsideAddresses,
)
from waltz_operator.core.planning import plan
from waltz_operator.core.steps import Step

NODE_PORT = {"type": "NodePort", "host": "node.example", "openZooKeeper": True}
LOAD_BALANCER = {"type": "LoadBalancer", "openZooKeeper": True}

_MAX_ROUNDS = 100
_FIRST_PORT = 30_000


def outside_world(outside: dict[str, Any] | None, *, pools: int = 3, **spec: Any) -> OutsideWorld:
    """Return a world that has not started, whose cluster has this access from outside."""
    listed = list("abcde"[:pools])
    access = {} if outside is None else {"outside": outside}
    resource = cluster_resource(pools=listed, partitions=2, access=access, **spec)
    return OutsideWorld(resource, [pool_resource(name) for name in listed])


class OutsideWorld(World):
    """A world whose servers have pods and whose Services have addresses."""

    def __init__(self, cluster: dict[str, Any], pools: list[dict[str, Any]]) -> None:
        super().__init__(cluster, pools)
        self.balancers_work = True
        self._pods_made = 0
        self._ports_given = 0

    @override
    def settle(self) -> None:
        super().settle()
        self.run_server_pods()
        self.give_addresses()

    def run_server_pods(self) -> None:
        """Let the controller create missing pods of servers, and remove those too many."""
        found = self.objects.get(ObjectKey("Deployment", "log-server"))
        wanted = 0 if found is None else found["spec"]["replicas"]
        running = [name for name in self.server_pods() if not self.stops(name)]
        for name in running[wanted + MAX_SURGE :]:
            del self.objects[ObjectKey("Pod", name)]
        for _ in range(wanted - len(running)):
            self.start_server()

    def give_addresses(self) -> None:
        """Let Kubernetes give ports and load balancers to Services without them."""
        for key, live in self.objects.items():
            if key.kind != "Service" or "type" not in live["spec"]:
                continue
            for port in live["spec"]["ports"]:
                if "nodePort" not in port:
                    self._ports_given += 1
                    port["nodePort"] = _FIRST_PORT + self._ports_given
            if live["spec"]["type"] == "LoadBalancer" and self.balancers_work:
                ingress = [{"hostname": f"{key.name}.example"}]
                live["status"] = {"loadBalancer": {"ingress": ingress}}

    def server_pods(self) -> list[str]:
        """Return the names of the pods of servers, the oldest first."""
        return sorted(
            key.name
            for key in self.objects
            if key.kind == "Pod" and key.name.startswith("log-server-")
        )

    def stops(self, pod: str) -> bool:
        """Whether a pod is being deleted."""
        return "deletionTimestamp" in self.objects[ObjectKey("Pod", pod)]["metadata"]

    def start_server(self) -> str:
        """Start the pod of one more server; return its name."""
        self._pods_made += 1
        number = self._pods_made
        name = f"log-server-{number:03}"
        self.objects[ObjectKey("Pod", name)] = {
            "metadata": {
                "name": name,
                "uid": f"uid-of-{name}",
                "labels": names.labels("log", Component.SERVER),
                "creationTimestamp": f"2026-01-01T00:00:{number:02}Z",
            },
            "spec": {"containers": [{"ports": [{"name": "waltz", "containerPort": 6100}]}]},
            "status": {"podIP": f"10.0.0.{number}", "phase": "Running"},
        }
        return name

    def stop_server(self, pod: str) -> None:
        """Begin to delete the pod of a server."""
        metadata = self.objects[ObjectKey("Pod", pod)]["metadata"]
        metadata["deletionTimestamp"] = "2026-01-01T01:00:00Z"

    def end_server(self, pod: str) -> None:
        """Let the pod of a server be gone."""
        del self.objects[ObjectKey("Pod", pod)]

    def slots(self) -> dict[str, str | None]:
        """Return the label of each pod of the servers."""
        return {
            name: self.objects[ObjectKey("Pod", name)]["metadata"]["labels"].get(SLOT_LABEL)
            for name in self.server_pods()
        }

    def services(self) -> dict[str, dict[str, Any]]:
        """Return the Services for access from outside by name."""
        return {
            key.name: live
            for key, live in self.objects.items()
            if key.kind == "Service" and key.name.endswith("-outside")
        }

    def outside(self) -> dict[str, str] | None:
        """Return the outside addresses in ZooKeeper."""
        assert isinstance(self.znodes, Znodes)
        return None if self.znodes.outside is None else dict(self.znodes.outside)

    def set_access(self, outside: dict[str, Any] | None) -> None:
        """Change the access from outside in the spec."""
        assert self.cluster is not None
        self.cluster["spec"]["access"] = {} if outside is None else {"outside": outside}

    @override
    def apply(self, manifest: Manifest) -> None:
        """Apply a manifest; a Service keeps the ports that Kubernetes has given to it."""
        before = deepcopy(self.objects.get(manifest.key, {}))
        super().apply(manifest)
        if manifest.key.kind == "Service":
            given = {
                port["name"]: port["nodePort"]
                for port in before.get("spec", {}).get("ports", ())
                if "nodePort" in port
            }
            for port in self.objects[manifest.key]["spec"]["ports"]:
                if port["name"] in given:
                    port["nodePort"] = given[port["name"]]

    @override
    def perform(self, step: Step) -> None:
        match step:
            case SetSlot(pod, slot):
                labels = self.objects[ObjectKey("Pod", pod)]["metadata"]["labels"]
                labels.pop(SLOT_LABEL, None)
                if slot is not None:
                    labels[SLOT_LABEL] = str(slot)
            case WriteOutsideAddresses(addresses, _):
                assert isinstance(self.znodes, Znodes)
                self.znodes.outside = dict(addresses)
            case DeleteOutsideAddresses():
                assert isinstance(self.znodes, Znodes)
                self.znodes.outside = None
            case _:
                super().perform(step)

    def until_done(self) -> list[Step]:
        """Perform plans until one has no steps; return all steps."""
        performed: list[Step] = []
        for _ in range(_MAX_ROUNDS):
            self.settle()
            planned = plan(self.desired(), self.observed())
            if not planned.steps:
                return performed
            for step in planned.steps:
                self.perform(step)
                performed.append(step)
        raise AssertionError(f"not done: {performed[-3:]}")
