"""End-to-end tests of the operator on a real Kubernetes: the one of the kubeconfig's context.

The tests need ``kubectl`` and ``helm``, the images of ``make images``, and a command that loads an
image's archive into the cluster's nodes (``WALTZ_E2E_LOAD``). ``make e2e`` runs them.

``kubectl`` and ``waiting`` are the tests' access to the cluster, ``resources`` what they apply.
``witness`` is a program that appends and reads during a test and reports every broken guarantee;
``witnessing`` runs it in a pod. ``killed_operator`` runs an operator that is killed after a step.
"""
