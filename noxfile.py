"""Run the unit tests on every supported Python: ``nox``, or ``make test-matrix``."""

from __future__ import annotations

import nox

nox.options.default_venv_backend = "venv"


@nox.session(python=["3.11", "3.12", "3.13", "3.14"])
def unit(session: nox.Session) -> None:
    """Install the locked dependencies, then run the tests that need no cluster."""
    session.install("--quiet", "--requirement", "requirements.lock")
    session.install("--quiet", "--no-deps", "--editable", ".")
    folders = [f"tests/{name}" for name in ("unit", "vectors", "transcripts", "fuzz", "tidy")]
    session.run("python", "-m", "pytest", *folders, *session.posargs)
