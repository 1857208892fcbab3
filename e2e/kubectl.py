"""Run ``kubectl`` and other commands as a user does. Starts programs, touches the network."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from e2e.reading import KINDS, ReadFailed, read_object, read_objects
from e2e.waiting import PATIENCE, until


class CommandFailed(AssertionError):
    """A command ended with an error; the message contains the error output of the command."""


def run(*command: str, given: str | None = None, seconds: float = 120.0) -> str:
    """Run a command with the input ``given`` and return its output. Raises CommandFailed."""
    ran = subprocess.run(
        command, input=given, capture_output=True, text=True, timeout=seconds, check=False
    )
    if ran.returncode != 0:
        raise CommandFailed(f"{' '.join(command)}: {ran.stderr.strip() or ran.stdout.strip()}")
    return ran.stdout


def staying_node() -> str:
    """Return the node that no test drains or stops.

    It is a node of the control plane; without one, the first node by name.
    """
    nodes = json.loads(run("kubectl", "get", "nodes", "-o", "json"))["items"]
    role = "node-role.kubernetes.io/control-plane"
    labels = {str(node["metadata"]["name"]): node["metadata"]["labels"] for node in nodes}
    control_plane = [name for name in labels if role in labels[name]]
    return min(control_plane or labels)


@dataclass(frozen=True, slots=True)
class Kubectl:
    """Runs ``kubectl`` in one namespace."""

    namespace: str

    def __call__(self, *arguments: str, given: str | None = None, seconds: float = 120.0) -> str:
        """Run ``kubectl`` with ``arguments`` and return its output. Raises CommandFailed."""
        return run("kubectl", "-n", self.namespace, *arguments, given=given, seconds=seconds)

    def apply(self, *bodies: Mapping[str, Any]) -> None:
        """Apply objects."""
        self("apply", "-f", "-", given="\n---\n".join(json.dumps(body) for body in bodies))

    def apply_file(self, file: Path) -> None:
        """Apply the objects of a file."""
        self("apply", "-f", str(file))

    def get(self, kind: str, name: str) -> dict[str, Any] | None:
        """Return an object, None if it does not exist. Raises CommandFailed."""
        # Without a start of kubectl, which takes more CPU time: see `e2e.reading`.
        if kind in KINDS:
            try:
                return read_object(kind, self.namespace, name)
            except ReadFailed as failed:
                raise CommandFailed(str(failed)) from failed
        printed = self("get", kind, name, "--ignore-not-found", "-o", "json")
        return json.loads(printed) if printed.strip() else None

    def find(self, kind: str, selector: str = "") -> list[dict[str, Any]]:
        """Return the objects of a kind that ``selector`` selects by label, by default all.

        Raises CommandFailed.
        """
        if kind in KINDS:
            try:
                return read_objects(kind, self.namespace, selector)
            except ReadFailed as failed:
                raise CommandFailed(str(failed)) from failed
        listed = json.loads(self("get", kind, "-l", selector, "-o", "json"))
        items: list[dict[str, Any]] = listed["items"]
        return items

    def patch(self, kind: str, name: str, change: Mapping[str, Any]) -> None:
        """Merge a change into an object."""
        self("patch", kind, name, "--type", "merge", "-p", json.dumps(change))

    def delete(self, kind: str, *names: str, now: bool = False, wait: bool = True) -> None:
        """Delete objects that exist; with ``wait``, return when they no longer exist.

        ``now`` kills pods without time for an orderly shutdown.
        """
        options = ["--grace-period=0", "--force"] if now else []
        self("delete", kind, *names, "--ignore-not-found", f"--wait={str(wait).lower()}", *options)

    def await_condition(self, resource: str, condition: str, seconds: float) -> None:
        """Return when ``resource``, such as ``pod/x``, has ``condition``, such as ``Ready``.

        Raises CommandFailed after ``seconds``, or later with killed operators (`PATIENCE`).
        """
        seconds *= PATIENCE
        try:
            self(
                "wait",
                resource,
                f"--for=condition={condition}",
                f"--timeout={seconds:g}s",
                seconds=seconds + 30,
            )
        except CommandFailed as failed:
            raise CommandFailed(f"{failed}\n{self.describe()}") from None

    def await_deleted(self, kind: str, name: str, seconds: float) -> None:
        """Return when the object no longer exists. Raises AssertionError after ``seconds``."""
        until(
            lambda: self.get(kind, name) is None,
            seconds,
            f"{kind} {name} is deleted",
            show=self.describe,
        )

    def create_namespace(self) -> None:
        """Create the namespace."""
        run("kubectl", "create", "namespace", self.namespace)

    def delete_namespace(self, seconds: float = 180.0, *, wait: bool = True) -> None:
        """Delete the namespace and everything in it; without ``wait``, return at once."""
        arguments = ("namespace", self.namespace, "--ignore-not-found", f"--wait={wait}".lower())
        run("kubectl", "delete", *arguments, seconds=seconds * PATIENCE)

    def describe(self) -> str:
        """Return the state that a failed test prints: at most 40 lines of each query."""
        queries: Iterable[tuple[str, ...]] = (
            ("get", "waltzclusters,storagepools,pods,persistentvolumeclaims", "-o", "wide"),
            ("get", "waltzclusters", "-o", "jsonpath={.items[*].status}"),
            ("get", "events", "--sort-by=.lastTimestamp"),
        )
        output = []
        for query in queries:
            try:
                output.append("\n".join(self(*query).splitlines()[-40:]))
            except CommandFailed as failed:
                output.append(str(failed))
        return "\n\n".join(output)
