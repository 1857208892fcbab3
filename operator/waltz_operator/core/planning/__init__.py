"""Decides what is to be done next for one cluster: ``plan(desired, observed)``. Pure.

The plan depends on nothing but what is wanted and what was found, so it does not matter what was
done before, by whom, or where it broke off. ``workloads`` sees to objects of Kubernetes, ``znodes``
to the metadata and the storages that it names, ``replicas`` to partitions, ``deletion`` to the end.

What holds whatever is found:

*Identity.* A storage's ``host:port``, its group and its admin port never change once it has a
partition; a StatefulSet is never made smaller than what is registered.

*Quorum.* A partition that may have transactions gets or loses a replica only when the replicas that
stay are healthy and are a quorum both of those that it had and of those that it will have, or when
it gets back one that its last session had. Such changes are one write, the last step of a plan, and
the next one waits until everybody has followed.

*History.* Znodes are made only where there is nothing, and taken away only if nobody has used them
or the cluster's deletion asks for it. An empty ZooKeeper member founds nothing once there are any.

*Others' property.* An object, a pool or a root that is not this cluster's is never touched.

*Order.* Whatever needs something waits until that can be seen: storages for the metadata, servers
for replicas of all new partitions in every pool. Repair of what is there waits for nothing.
"""

from waltz_operator.core.planning.planner import plan

__all__ = ["plan"]
