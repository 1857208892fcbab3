"""Runs Waltz clusters on Kubernetes: reads what is, compares with what shall be, takes safe steps.

Pure: ``resources`` (what users write), ``names``, ``objects`` (what Kubernetes is given),
``observed``, ``desired``, ``steps``, ``planning`` and ``status`` (what is decided). The shell:
``kube`` (the API server), ``observing``, ``executing``, ``certificates``, ``election``,
``handlers`` and ``main``; ``dying`` is for tests.
"""
