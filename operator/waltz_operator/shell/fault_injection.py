"""Ends the operator in the middle of its work, so that tests can do that after every step.

Touches the process. Nobody sets this up but a test: what a crash between any two steps leaves must
be what the next operator goes on from.
"""

from __future__ import annotations

import os
import signal

from waltz_operator.core.resources import WaltzCluster
from waltz_operator.core.steps import Step
from waltz_operator.shell.reconciler import Diary


class LastDiary:
    """A diary whose writer is killed, as by SIGKILL, once so many steps were done."""

    def __init__(self, diary: Diary, steps: int) -> None:
        assert steps > 0
        self._diary = diary
        self._left = steps

    def did(self, cluster: WaltzCluster, step: Step) -> None:
        """See Diary."""
        self._diary.did(cluster, step)
        self._left -= 1
        if self._left == 0:
            os.kill(os.getpid(), signal.SIGKILL)

    def failed(self, cluster: WaltzCluster, reason: str) -> None:
        """See Diary."""
        self._diary.failed(cluster, reason)
