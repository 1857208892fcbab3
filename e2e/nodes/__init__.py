"""End-to-end tests on three nodes: one is drained, one dies and comes back.

They need a Kubernetes with at least three nodes and, in `NODE_COMMAND`, a command that cuts the
power of a node. `make e2e-nodes` runs them; `make e2e` does not.
"""

NODE_COMMAND = "WALTZ_E2E_NODE"
"""The variable with the command that is called with `stop NODE` and with `start NODE`."""

__all__ = ["NODE_COMMAND"]
