"""End-to-end tests of the operator on a real Kubernetes cluster, that of the kubeconfig's context.

The tests need ``kubectl`` and ``helm``, the images of ``make images``, and a command that loads the
archive of an image into the cluster's nodes (``WALTZ_E2E_LOAD``). ``make e2e`` runs the tests.

``conftest`` has the fixtures: most tests share the cluster ``log``, whose namespace is the fixture
``log``. ``kubectl`` runs commands on the Kubernetes cluster, ``waiting`` waits for conditions,
``resources`` defines the objects that the tests apply. ``witness`` is a program that appends and
reads during a test and reports every broken guarantee; ``witnessing`` runs the witness in a pod.
``killed_operator`` runs operators that are killed after each step.
"""
