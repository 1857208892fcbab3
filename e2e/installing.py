"""Load the images into the cluster; install and uninstall the chart. Starts programs."""

from __future__ import annotations

import os
import shlex
from collections.abc import Collection

from e2e import resources
from e2e.kubectl import Kubectl, run
from e2e.waiting import until

LOAD = "WALTZ_E2E_LOAD"
"""The variable with the command that loads an archive into the cluster."""

OPERATOR = Kubectl("waltz-system")
"""The namespace of the shared operator, which watches all namespaces."""

RELEASE = "waltz"
"""The name of the operator's release, and so of its Deployment, Lease and ServiceAccount."""


def load_images(*, without: Collection[str] = ()) -> None:
    """Load the archives of ``make images`` by the command in `LOAD`.

    ``without`` are images that no test uses. Without the variable the images are expected to be in
    the cluster.
    """
    command = os.environ.get(LOAD)
    if command is None:
        return
    archives = sorted(resources.ARCHIVES.glob("waltz-*.tar"))
    assert archives, f"no images in {resources.ARCHIVES}: run make images"
    for archive in archives:
        if archive.stem in without:
            continue
        run(*shlex.split(command), str(archive), seconds=300)


def install(**values: str) -> None:
    """Install or upgrade the chart with ``values``; return before its pods are ready."""
    arguments = ["-n", OPERATOR.namespace, "--create-namespace"]
    for name, value in values.items():
        arguments += ["--set", f"{name}={value}"]
    run("helm", "upgrade", "--install", RELEASE, str(resources.CHART), *arguments)


def install_in(kubectl: Kubectl) -> None:
    """Install an operator into one namespace, which is the only one that it watches."""
    values = f"watchNamespace={kubectl.namespace},crds.install=false,replicas=1"
    chart = str(resources.CHART)
    run("helm", "install", RELEASE, chart, "-n", kubectl.namespace, "--set", values)


def uninstall_from(kubectl: Kubectl) -> None:
    """Uninstall the operator of one namespace.

    This removes the finalizers there, so that the clusters can be deleted without the operator.
    """
    run("helm", "uninstall", RELEASE, "-n", kubectl.namespace, "--ignore-not-found")


def await_deleted_namespaces(seconds: float) -> None:
    """Return when no namespace is being deleted.

    The deletion of a namespace with a cluster completes only while the operator runs.
    """

    def all_deleted() -> bool:
        return "Terminating" not in run("kubectl", "get", "namespaces")

    until(
        all_deleted,
        seconds,
        "no namespace is terminating",
        show=lambda: run("kubectl", "get", "namespaces"),
    )


def uninstall() -> None:
    """Uninstall the shared operator, and delete the CRDs."""
    run("helm", "uninstall", RELEASE, "-n", OPERATOR.namespace, "--ignore-not-found")
    OPERATOR.delete_namespace()
    for plural in ("waltzclusters", "storagepools"):
        definition = f"{plural}.waltz.dev"
        run("kubectl", "delete", "customresourcedefinition", definition, "--ignore-not-found")
