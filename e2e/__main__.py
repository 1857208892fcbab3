"""Run the tests on the Kubernetes of the current context: `python -m e2e`, or `make e2e`.

1. The shared cluster is installed, and its first start is tested.
2. Tests that do not disturb each other run, five at a time: they wait for pods most of the time.
3. The operator is stopped. Tests that kill operators of their own run, six at a time.
4. Tests that stop or replace the operator run, one at a time. Then everything is uninstalled.

`python -m e2e nodes`, or `make e2e-nodes`, runs only the tests in `e2e.nodes`, and
`python -m e2e shapes`, or `make e2e-shapes`, those in `e2e.shapes`, which take ten minutes.

`python -m e2e killed`, or `make e2e-killed`, runs the tests of a first start and of changes with
operators that are killed after every step. `python -m e2e killed nodes`, or
`make e2e-nodes-killed`, runs the tests of nodes with such operators, and
`python -m e2e killed shapes`, or `make e2e-shapes-killed`, those of shapes.

A *session* is one run of pytest, with the arguments in a tuple below.
"""

from __future__ import annotations

import os
import subprocess
import sys

from e2e import installing
from e2e.conftest import KEEP, LOGS, remove_shared_cluster
from e2e.killing import count_killed_operators
from e2e.operators import Operator
from e2e.waiting import KILLED

_PYTEST = (sys.executable, "-m", "pytest", "--durations=0")
_USAGE = "usage: python -m e2e [nodes | shapes | killed | killed nodes | killed shapes]"
_FIRST_START = "e2e/test_first_start.py"
_NODES = "e2e/nodes"
_SHAPES = "e2e/shapes"
_GROUPS = ("--dist", "loadgroup", "--no-loadscope-reorder")
"""The workers take the files in their order.

Otherwise `test_ca_rotation`, which takes longest, would begin last, because it has few tests.
"""
_ALL = ("e2e", f"--ignore={_NODES}", f"--ignore={_SHAPES}")
_UNDISTURBING = "not alone and not own_operator"
"""The markers of the tests that run second (see the module's docstring)."""
_ON_ONE_NODE = (
    (_FIRST_START,),
    (*_ALL, f"--ignore={_FIRST_START}", "-m", _UNDISTURBING, "-n", "5", *_GROUPS),
)
_WITH_OWN_OPERATORS = (*_ALL, "-m", "own_operator", "-n", "6", *_GROUPS)
_LAST = (*_ALL, "-m", "alone")
_CHANGES = ("lost_volume", "rolling_changes", "shape", "ca_rotation", "outside_access")
"""The files that also run with killed operators: their changes have many steps."""
_NOT_KILLED = "e2e/test_shape.py::test_pool_reverted_half_way_returns_to_the_old_copies"
"""A test that waits for a status during a change.

An operator writes the status after its steps, so a killed operator does not write it.
The tests of shapes that wait for such a status have ``half_way`` in their names, too.
"""


def main(arguments: list[str]) -> int:
    """Run the tests that ``arguments`` select, as the module's docstring says.

    Returns the exit status of the first session that failed, 0 if none did, and 2 for wrong
    arguments. After a failure the shared cluster is left as it is.
    """
    match arguments:
        case []:
            return _run_on_one_node()
        case ["nodes"]:
            return subprocess.run((*_PYTEST, _NODES), check=False).returncode
        case ["shapes"]:
            failed = _run_keeping(((_FIRST_START,), (_SHAPES, "-n", "3", *_GROUPS)))
            if not failed:
                remove_shared_cluster()
            return failed
        case ["killed"]:
            files = tuple(f"e2e/test_{name}.py" for name in _CHANGES)
            # One after the other: one operator at a time performs the steps of all clusters.
            changes = (*files, "-m", _UNDISTURBING, f"--deselect={_NOT_KILLED}")
            return _run_with_killed_operators((_FIRST_START,), changes)
        case ["killed", "nodes"]:
            return _run_with_killed_operators((_NODES,))
        case ["killed", "shapes"]:
            return _run_with_killed_operators((_FIRST_START,), (_SHAPES, "-k", "not half_way"))
        case _:
            print(_USAGE, file=sys.stderr)  # noqa: T201
            return 2


def _run_on_one_node() -> int:
    """Run the tests of `python -m e2e`; return the exit status of the session that failed, or 0."""
    failed = _run_keeping(_ON_ONE_NODE)
    if failed:
        return failed
    operator = Operator(installing.OPERATOR)
    operator.stop()
    failed = _run_keeping((_WITH_OWN_OPERATORS,))
    operator.start()
    # The first session has loaded the images.
    variables = {name: value for name, value in os.environ.items() if name != installing.LOAD}
    return failed or subprocess.run((*_PYTEST, *_LAST), env=variables, check=False).returncode


def _run_keeping(sessions: tuple[tuple[str, ...], ...]) -> int:
    """Run sessions, and keep the shared cluster after each; stop at the first that fails.

    Returns the exit status of the session that failed, 0 if none did.
    """
    for session in sessions:
        ended = subprocess.run((*_PYTEST, *session), env={**os.environ, KEEP: "1"}, check=False)
        if ended.returncode != 0:
            print(f"The cluster in the namespace {LOGS.namespace} is left as it is.")  # noqa: T201
            return ended.returncode
    return 0


def _run_with_killed_operators(*sessions: tuple[str, ...]) -> int:
    """Run sessions in which every operator is killed after its first step.

    Returns the exit status of the session that failed, 0 if none did.
    """
    variables = {**os.environ, KEEP: "1", KILLED: "1"}
    for session in sessions:
        ended = subprocess.run((*_PYTEST, *session), env=variables, check=False)
        if ended.returncode != 0:
            return ended.returncode
    print(f"{count_killed_operators(installing.OPERATOR)} operators were killed")  # noqa: T201
    remove_shared_cluster()
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
