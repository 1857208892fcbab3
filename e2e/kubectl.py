"""What the tests do to a Kubernetes: by ``kubectl``, as a user would. Starts programs."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from e2e.waiting import until


class CommandFailed(AssertionError):
    """A command ended with an error; the text is its own."""


def run(*command: str, given: str | None = None, seconds: float = 120.0) -> str:
    """Run a command and return what it printed. Raises CommandFailed."""
    ran = subprocess.run(
        command, input=given, capture_output=True, text=True, timeout=seconds, check=False
    )
    if ran.returncode != 0:
        raise CommandFailed(f"{' '.join(command)}: {ran.stderr.strip() or ran.stdout.strip()}")
    return ran.stdout


@dataclass(frozen=True, slots=True)
class Kubectl:
    """Commands in one namespace."""

    namespace: str

    def __call__(self, *arguments: str, given: str | None = None, seconds: float = 120.0) -> str:
        """Run ``kubectl``. Raises CommandFailed."""
        return run("kubectl", "-n", self.namespace, *arguments, given=given, seconds=seconds)

    def apply(self, *bodies: Mapping[str, Any]) -> None:
        """Have objects be so."""
        self("apply", "-f", "-", given="\n---\n".join(json.dumps(body) for body in bodies))

    def apply_file(self, file: Path) -> None:
        """Apply what is in a file."""
        self("apply", "-f", str(file))

    def get(self, kind: str, name: str) -> dict[str, Any] | None:
        """Return an object, None if there is none."""
        found = self("get", kind, name, "--ignore-not-found", "-o", "json")
        return json.loads(found) if found.strip() else None

    def find(self, kind: str, selector: str = "") -> list[dict[str, Any]]:
        """Return the objects with these labels."""
        items: list[dict[str, Any]] = json.loads(self("get", kind, "-l", selector, "-o", "json"))[
            "items"
        ]
        return items

    def patch(self, kind: str, name: str, change: Mapping[str, Any]) -> None:
        """Merge a change into an object."""
        self("patch", kind, name, "--type", "merge", "-p", json.dumps(change))

    def delete(self, kind: str, *names: str, now: bool = False, wait: bool = True) -> None:
        """Delete objects; ``now`` gives pods no time to end in good order."""
        options = ["--grace-period=0", "--force"] if now else []
        self("delete", kind, *names, "--ignore-not-found", f"--wait={str(wait).lower()}", *options)

    def await_condition(self, what: str, condition: str, seconds: float) -> None:
        """Return when ``what`` (``pod/x``) has a condition that is true."""
        try:
            self(
                "wait",
                what,
                f"--for=condition={condition}",
                f"--timeout={seconds:g}s",
                seconds=seconds + 30,
            )
        except CommandFailed as failed:
            raise CommandFailed(f"{failed}\n{self.describe()}") from None

    def await_gone(self, kind: str, name: str, seconds: float) -> None:
        """Return when there is no such object."""
        until(
            lambda: self.get(kind, name) is None,
            seconds,
            f"{kind} {name} is gone",
            show=self.describe,
        )

    def create_namespace(self) -> None:
        """Make the namespace."""
        run("kubectl", "create", "namespace", self.namespace)

    def delete_namespace(self, seconds: float = 180.0, *, wait: bool = True) -> None:
        """Delete the namespace with all that is in it; without ``wait``, it goes by and by."""
        arguments = ("namespace", self.namespace, "--ignore-not-found", f"--wait={wait}".lower())
        run("kubectl", "delete", *arguments, seconds=seconds)

    def describe(self) -> str:
        """Return what a person would look at when something is wrong."""
        looks: Iterable[tuple[str, ...]] = (
            ("get", "waltzclusters,storagepools,pods,persistentvolumeclaims", "-o", "wide"),
            ("get", "waltzclusters", "-o", "jsonpath={.items[*].status}"),
            ("get", "events", "--sort-by=.lastTimestamp"),
        )
        told = []
        for look in looks:
            try:
                told.append("\n".join(self(*look).splitlines()[-40:]))
            except CommandFailed as failed:
                told.append(str(failed))
        return "\n\n".join(told)
