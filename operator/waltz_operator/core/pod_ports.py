"""Read the ports of pods that exist. Pure.

After a change of a port in the spec, pods with the earlier port run until an update has replaced
them.
"""

from __future__ import annotations

from waltz_operator.core.observed import LiveObject


def port_of_pod(live: LiveObject, name: str, default: int) -> int:
    """Return the number of the port ``name`` of a pod, which may be of an earlier version.

    ``default`` is the number in the spec. It is returned for a pod that declares no such port.
    """
    containers = (live.get("spec") or {}).get("containers") or ()
    ports = (port for each in containers for port in each.get("ports") or ())
    numbers = (port["containerPort"] for port in ports if port.get("name") == name)
    return int(next(numbers, default))
