"""Decide about a cluster: the next step of an order, what is wrong, what differs. Pure.

`waltz.admin` observes the cluster, passes the observations to these modules as values, and acts on
the values that they return.
"""
