"""Run the command ``waltz-operator``, also by ``python -m waltz_operator``."""

import argparse
import sys

from waltz.runtime.extras import run_main
from waltz.runtime.one_line_parser import OneLineParser
from waltz.runtime.version import build_version


def main() -> None:
    """Run the operator or its command ``plan``; if a package is missing, name the remedy.

    ``waltz-operator plan`` runs beside the operator in one container, within the same memory limit.
    So it does not import the modules of the operator's process, and needs less memory.
    """
    is_plan = sys.argv[1:2] == ["plan"]
    if not is_plan:
        # `--help`, `--version` or an unknown option ends the process here. Otherwise
        # `waltz_operator.main`, which has no parser, would ignore it and start an operator.
        _parser().parse_args()
    module = "waltz_operator.plan_command" if is_plan else "waltz_operator.main"
    run_main(module, "waltz-operator", "operator")


def _parser() -> argparse.ArgumentParser:
    """Return the parser of the operator's own command line: only ``--help`` and ``--version``."""
    parser = OneLineParser(
        "waltz-operator",
        description="Run the operator of Waltz clusters on Kubernetes, with the settings that its "
        "chart sets as environment variables.",
        epilog="waltz-operator plan shows what the operator would do, and changes nothing: "
        "waltz-operator plan --help.",
    )
    version = f"waltz-operator {build_version() or 'unknown'}"
    parser.add_argument("--version", action="version", version=version, help="show the version")
    return parser


if __name__ == "__main__":
    main()
