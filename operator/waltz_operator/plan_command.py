"""Run ``waltz-operator plan``: show what the operator would do for a file, and change nothing.

The command observes clusters as the operator does, with its account and its certificates. Touches
the API server, ZooKeeper and the cluster's processes, which it only reads, and the terminal.
"""

from __future__ import annotations

import argparse
import asyncio
import logging
import math
import os
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

from waltz.runtime.one_line_parser import OneLineParser
from waltz_operator.core.preview import MEGABYTES_PER_SECOND, preview, report
from waltz_operator.shell.api_login import NoKubeConfig
from waltz_operator.shell.clock import utc_now
from waltz_operator.shell.desired_reader import InvalidResource, read_desired
from waltz_operator.shell.environment import Environment, NetworkEnvironment
from waltz_operator.shell.fencing import LeaderEnvironment
from waltz_operator.shell.kube_api import Kube, KubeError, connected_api_server
from waltz_operator.shell.observer import observe
from waltz_operator.shell.requested import (
    Requested,
    RequestedKube,
    RequestRefused,
    clusters_of,
    merge_resources,
    read_resources,
)

_DESCRIPTION = "Show what the operator would do, and change nothing."
_EPILOG = (
    "To check a file by all rules of the API server, pipe it: kubectl apply --dry-run=server "
    "-o yaml -f FILE | kubectl exec -i -n waltz-system deployment/waltz -- waltz-operator plan -f -"
)


def main() -> None:
    """Run the command with the arguments of the process."""
    # Log lines would disturb the output. Failures are part of the plan, or end the command.
    logging.disable(logging.CRITICAL)
    options = _parser().parse_args(sys.argv[2:])  # The first argument is the command, "plan".
    try:
        text = _read_file(options.file)
        lines = asyncio.run(_run(options, text))
    except (KubeError, NoKubeConfig, InvalidResource, RequestRefused) as problem:
        sys.exit(f"waltz-operator plan: {' '.join(str(problem).split())}")
    sys.stdout.writelines(f"{line}\n" for line in lines)


def _parser() -> argparse.ArgumentParser:
    parser = OneLineParser(prog="waltz-operator plan", description=_DESCRIPTION, epilog=_EPILOG)
    parser.add_argument("cluster", nargs="?", help="the WaltzCluster; by default those of the file")
    parser.add_argument(
        "-f",
        "--file",
        metavar="FILE",
        help="WaltzClusters and StoragePools to preview, - for standard input; by default the plan "
        "of the resources as they are",
    )
    parser.add_argument(
        "-n", "--namespace", default="default", help="the namespace, if the file names none"
    )
    parser.add_argument("--steps", action="store_true", help="print every step, in its order")
    parser.add_argument(
        "--rate",
        type=_positive,
        default=MEGABYTES_PER_SECOND,
        metavar="MB",
        help="the rate of copies and comparisons in MB/s, for the estimated time; by default "
        f"{MEGABYTES_PER_SECOND:g}",
    )
    return parser


def _positive(text: str) -> float:
    """Return a positive number. Raises argparse.ArgumentTypeError."""
    try:
        number = float(text)
    except ValueError:
        number = 0.0
    if not 0 < number < math.inf:
        raise argparse.ArgumentTypeError(f"{text} is not a positive number, such as 50")
    return number


def _read_file(file: str | None) -> str | None:
    """Return the content of ``file`` or, if it is ``-``, of standard input; None without a file.

    Raises RequestRefused.
    """
    if file is None:
        return None
    try:
        return sys.stdin.read() if file == "-" else Path(file).read_text()
    except OSError as problem:
        raise RequestRefused(f"cannot read {file}: {problem.strerror}") from problem
    except UnicodeDecodeError as problem:
        raise RequestRefused(f"{file} is not text: name a YAML file") from problem


async def _run(options: argparse.Namespace, text: str | None) -> list[str]:
    """Return the lines to print; ``text`` is the content of the file, None without one.

    Raises KubeError, NoKubeConfig, InvalidResource, RequestRefused.
    """
    namespace: str = options.namespace
    async with connected_api_server() as kube:
        with tempfile.TemporaryDirectory() as folder:
            environment = NetworkEnvironment(kube, Path(folder))
            try:
                resources = [] if text is None else read_resources(text, namespace)
                requested = await merge_resources(kube, resources)
                chosen = await _clusters_to_plan(kube, requested, namespace, options.cluster)
                return await plan_lines(
                    kube,
                    environment,
                    requested,
                    chosen,
                    every_step=options.steps,
                    megabytes_per_second=options.rate,
                )
            finally:
                await environment.close()


async def _clusters_to_plan(
    kube: Kube, requested: Requested, namespace: str, cluster: str | None
) -> list[tuple[str, str]]:
    """Return the namespace and name of each cluster to preview.

    If the command line names a ``cluster``, this cluster is previewed in each namespace that occurs
    in the file; without a file, in ``namespace``. Whether it exists there is not checked here.
    Raises KubeError, RequestRefused.
    """
    if cluster is not None:
        # The keys of ``requested`` are kind, namespace and name.
        namespaces = {namespace_in_file for _, namespace_in_file, _ in requested} or {namespace}
        return [(each, cluster) for each in sorted(namespaces)]
    if not requested:
        raise RequestRefused("name a WaltzCluster, or a file with -f")
    chosen = await clusters_of(kube, requested)
    if not chosen:
        raise RequestRefused(
            "no WaltzCluster uses the pools of the file: add the changed WaltzCluster to the file"
        )
    return chosen


async def plan_lines(
    kube: Kube,
    environment: Environment,
    requested: Requested,
    clusters: Sequence[tuple[str, str]],
    *,
    every_step: bool = False,
    megabytes_per_second: float = MEGABYTES_PER_SECOND,
) -> list[str]:
    """Return the lines for ``clusters``. Raises KubeError, InvalidResource, RequestRefused.

    ``kube`` and ``environment`` are only read: both are wrapped so that every write is refused.
    """
    reads = RequestedKube(kube, requested)
    read_only = LeaderEnvironment(environment, may_write=lambda: False)
    lines: list[str] = []
    for namespace, name in clusters:
        live = await reads.get("WaltzCluster", namespace, name)
        if live is None:
            raise RequestRefused(f"WaltzCluster {namespace}/{name} does not exist: check the name")
        operator_namespace = os.environ.get("WALTZ_OPERATOR_NAMESPACE", "default")
        desired = await read_desired(reads, live, operator_namespace)
        observed = await observe(desired, reads, read_only, utc_now())
        lines.append(f"plan of WaltzCluster {namespace}/{name}; nothing was changed")
        lines += report(
            preview(desired, observed),
            every_step=every_step,
            megabytes_per_second=megabytes_per_second,
        )
    return lines
