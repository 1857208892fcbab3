"""The plan of a local cluster in its directory: read it, or create it. Touches files and ports."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from waltz.local.core.plan import ClusterLayout, LocalClusterPlan, PlanError, Shape
from waltz.local.ports import PortReservations


def make_directory(directory: Path) -> None:
    """Make the directory of a cluster, if it does not exist. Raises PlanError."""
    try:
        directory.mkdir(parents=True, exist_ok=True)
    except OSError as problem:
        reason = "it is a file" if directory.is_file() else problem.strerror
        raise PlanError(
            f"cannot create the directory {directory} ({reason}); choose another with --dir"
        ) from problem


def read_or_create_plan(
    directory: Path, shape: Shape | None, reservations: PortReservations
) -> LocalClusterPlan:
    """Return the plan of the cluster in the directory; create a plan if there is no cluster.

    ``shape`` is the wanted shape. None: the shape of the existing cluster, or the default shape for
    a new cluster. The ports of a new plan stay reserved until the caller releases ``reservations``.

    Raises NoFreePorts. Raises PlanError if the existing cluster has another shape, or its plan
    cannot be read.
    """
    path = ClusterLayout(directory).plan
    plan = _read_plan(path)
    if plan is None:
        shape = shape or Shape()
        plan = LocalClusterPlan.of(shape, reservations.choose(shape.num_ports, shape.host))
        # The plan gets its name only when it is complete. If a crash left an incomplete plan, the
        # cluster could not start any more.
        part = path.with_suffix(".part")
        part.write_text(plan.to_json())
        part.replace(path)
    elif shape is not None and shape != plan.shape:
        raise PlanError(
            f"{directory} holds a cluster of {plan.shape}, not of {shape}; to start this "
            "cluster, leave out these options; for a new cluster, choose another directory"
        )
    return plan


def wanted_shape(directory: Path, changes: Mapping[str, Any]) -> Shape:
    """Return the wanted shape of the cluster in ``directory``. Raises PlanError.

    That is the shape of the existing cluster, or the default shape if there is none, with the
    fields in ``changes`` replaced.
    """
    plan = _read_plan(ClusterLayout(directory.absolute()).plan)
    return replace(Shape() if plan is None else plan.shape, **changes)


def _read_plan(path: Path) -> LocalClusterPlan | None:
    """Return the plan in the file ``path``, None if there is no file. Raises PlanError."""
    try:
        return LocalClusterPlan.from_json(path.read_text())
    except FileNotFoundError:
        return None
    except (PlanError, UnicodeDecodeError) as problem:
        why = problem if isinstance(problem, PlanError) else "it is not text"
        raise PlanError(
            f"{path} is not the plan of a local cluster: {why}; choose another directory"
        ) from problem
