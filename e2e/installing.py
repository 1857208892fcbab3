"""Loads the images and installs the chart, once for all tests. Starts programs."""

from __future__ import annotations

import os
import shlex

from e2e import resources
from e2e.kubectl import Kubectl, run
from e2e.waiting import until

OPERATOR = Kubectl("waltz-system")
RELEASE = "waltz"


def load_images() -> None:
    """Load every archive of ``make images`` by the command that the environment gives, if any."""
    command = os.environ.get("WALTZ_E2E_LOAD")
    if command is None:
        return
    archives = sorted(resources.ARCHIVES.glob("waltz-*.tar"))
    assert archives, f"there are no images in {resources.ARCHIVES}: make images"
    for archive in archives:
        run(*shlex.split(command), str(archive), seconds=300)


def install(**values: str) -> None:
    """Install the chart, or upgrade it; returns when Helm does, which is before pods are ready."""
    arguments = ["-n", OPERATOR.namespace, "--create-namespace"]
    for name, value in values.items():
        arguments += ["--set", f"{name}={value}"]
    run("helm", "upgrade", "--install", RELEASE, str(resources.CHART), *arguments)


def await_ends(seconds: float) -> None:
    """Return when no namespace is on its way out: nobody would finish that without the operator."""

    def all_gone() -> bool:
        return "Terminating" not in run("kubectl", "get", "namespaces")

    until(
        all_gone, seconds, "namespaces are gone", show=lambda: run("kubectl", "get", "namespaces")
    )


def uninstall() -> None:
    """Take away the operator and the definitions of its resources."""
    run("helm", "uninstall", RELEASE, "-n", OPERATOR.namespace, "--ignore-not-found")
    OPERATOR.delete_namespace()
    for plural in ("waltzclusters", "storagepools"):
        definition = f"{plural}.waltz.dev"
        run("kubectl", "delete", "customresourcedefinition", definition, "--ignore-not-found")
