"""Decide what a cluster needs next: desired and observed state in, plan and status out. Pure."""
