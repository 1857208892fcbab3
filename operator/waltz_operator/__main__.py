"""Run the command ``waltz-operator``, also by ``python -m waltz_operator``."""

import sys

from waltz.runtime.extras import run_main


def main() -> None:
    """Run the operator or its command ``plan``; if a package is missing, name the remedy.

    ``waltz-operator plan`` does not import the operator's process: it needs less memory, and runs
    beside the operator in one container.
    """
    is_plan = sys.argv[1:2] == ["plan"]
    module = "waltz_operator.plan_command" if is_plan else "waltz_operator.main"
    run_main(module, "waltz-operator", "operator")


if __name__ == "__main__":
    main()
