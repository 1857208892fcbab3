"""Run Waltz clusters on Kubernetes: compare their actual with their desired state, perform steps.

``core`` decides what to do, and has no side effects. ``core.resources`` defines the resources that
users write, ``core.objects`` the Kubernetes objects that the operator creates. ``core.planning``
compares ``core.observed`` with ``core.desired`` and returns ``core.steps``. ``core.status`` derives
the statuses.

``shell`` acts. ``observer`` reads the actual state, ``executor`` performs steps. ``reconciler``
calls both once for one cluster, and ``controller`` decides when. ``resting`` keeps the last state
of clusters that need nothing, so that they are checked without the API server. ``leader_election``
selects the one active operator, and ``fencing`` refuses the writes of any other operator. ``main``
runs the process.
"""
