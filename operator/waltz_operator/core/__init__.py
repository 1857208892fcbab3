"""Decide the next steps of a cluster: desired and observed state in, plan and status out. Pure."""
