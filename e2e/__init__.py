"""Promises of the operator, kept on a real Kubernetes: whichever the kubeconfig's context names.

The tests need ``kubectl`` and ``helm``, the images of ``make images``, and a command that loads an
image's archive into the cluster's nodes (``WALTZ_E2E_LOAD``). ``make e2e`` runs them.

``kubectl`` and ``waiting`` are how the cluster is spoken to, ``resources`` what is applied,
``witness`` is the program that appends and reads all the while, ``witnessing`` its pod.
"""
