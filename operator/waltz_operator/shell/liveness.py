"""Decide whether the operator makes progress; the answer of ``/healthz``.

Kubernetes restarts the operator while ``/healthz`` fails. An API server that does not answer is no
reason for a restart: a watch that fails is started again, which counts as progress. Touches the
event loop's clock.
"""

from __future__ import annotations

import asyncio

from waltz_operator.shell.controller import Controller

_WATCH_SECONDS = 600.0
"""The time in seconds after which a watch that has not begun again is stuck.

A watch that works begins again after less than half of this time: the API server ends it after 240
seconds, and if it does not, `waltz_operator.shell.kube_api` ends the watch after 270 seconds.
"""

_RECONCILE_SECONDS = 1800.0
"""The time after which a reconcile without progress is stuck.

Most steps have a timeout of 30 seconds, and a plan has many steps. A step that copies a replica
ends after about 10 seconds, and the next plan continues the copy. A step that first proves that
replicas are equal has no limit, because it reads whole logs: it reports its progress
(`Controller.note_progress`).
"""


class Liveness:
    """Remembers when each watch began last."""

    def __init__(self, controller: Controller) -> None:
        self._controller = controller
        self._begun: dict[str, float] = {}
        """The time at which each watch began last, by the kind that it watches."""

    def progress(self, watch: str) -> None:
        """Note that a watch begins: watches end regularly, so this is their progress."""
        self._begun[watch] = asyncio.get_running_loop().time()

    def problem(self) -> str | None:
        """Return why the operator is unhealthy, None if it is healthy.

        An operator that waits for the Lease is healthy: it has no watch and no reconcile yet.
        """
        now = asyncio.get_running_loop().time()
        for watch, begun in self._begun.items():
            if now - begun > _WATCH_SECONDS:
                return f"the watch of {watch} made no progress for {now - begun:.0f} s"
        stuck = self._controller.stuck(_RECONCILE_SECONDS)
        if stuck is not None:
            return (
                f"the reconcile of cluster {'/'.join(stuck)} made no progress for "
                f"{_RECONCILE_SECONDS:.0f} s"
            )
        return None
