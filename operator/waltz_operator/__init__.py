"""Run Waltz clusters on Kubernetes: compare the actual state with the desired one, take safe steps.

``core`` decides: ``resources`` (which users write), ``objects`` (which the operator creates in
Kubernetes), ``desired``, ``observed``, ``planning``, ``steps`` and ``status``. ``shell`` acts:
``observer`` reads the actual state, ``executor`` performs steps, ``reconciler`` connects them,
``controller`` decides when, ``leader_election`` which of several operators is active. ``main`` is
the process.
"""
