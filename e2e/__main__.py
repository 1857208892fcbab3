"""Run the tests on the Kubernetes of the current context: `python -m e2e`, or `make e2e`.

1. The shared cluster is installed, and its first start is tested.
2. Tests that do not disturb each other run, two at a time: they wait for pods most of the time.
3. Tests that stop or replace the operator run, one at a time. Then everything is uninstalled.

`python -m e2e nodes`, or `make e2e-nodes`, runs only the tests in `e2e.nodes`.
"""

from __future__ import annotations

import os
import subprocess
import sys

from e2e.conftest import KEEP, LOGS

_PYTEST = (sys.executable, "-m", "pytest", "--durations=0")
_FIRST_START = "e2e/test_first_start.py"
_NODES = "e2e/nodes"
_KEEPING = (
    (_FIRST_START,),
    (
        "e2e",
        f"--ignore={_FIRST_START}",
        f"--ignore={_NODES}",
        *("-m", "not alone"),
        *("-n", "2", "--dist", "loadgroup"),
    ),
)
"""What the sessions run after which the shared cluster is kept."""
_LAST = ("e2e", f"--ignore={_NODES}", "-m", "alone")


def main(arguments: list[str]) -> int:
    """Run the tests that ``arguments`` name: those of nodes, or all others.

    Return the exit status of the first session that failed; 0: none did.

    After a failure the shared cluster is left as it is.
    """
    if arguments == ["nodes"]:
        return subprocess.run((*_PYTEST, _NODES), check=False).returncode
    for session in _KEEPING:
        ended = subprocess.run((*_PYTEST, *session), env={**os.environ, KEEP: "1"}, check=False)
        if ended.returncode != 0:
            print(f"The cluster in the namespace {LOGS.namespace} is left as it is.")  # noqa: T201
            return ended.returncode
    return subprocess.run((*_PYTEST, *_LAST), check=False).returncode


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
