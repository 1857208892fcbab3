"""Report which extra of the distribution must be installed, if a library of that extra is missing.

The distribution is ``waltz-log``. Without an extra it installs the libraries of the client alone.
`run_main` starts a command of the distribution with this report.
Touches the installed packages, which it imports or looks up.
"""

from __future__ import annotations

import gc
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from importlib import import_module
from importlib.util import find_spec
from types import ModuleType

DISTRIBUTION = "waltz-log"


class ExtraMissing(ImportError):
    """A library of an extra is not installed. The text has the command that installs it."""


@contextmanager
def needs_extra(user: str, extra: str) -> Iterator[None]:
    """Raise ExtraMissing if an import in the block does not find its library.

    ``user`` is what needs the library, such as ``waltz.state``.
    """
    try:
        yield
    except ModuleNotFoundError as missing:
        package = (missing.name or "").partition(".")[0]
        if package.startswith("waltz"):
            raise  # A module of Waltz itself is missing: no extra contains it.
        raise _missing(user, package, extra) from None


def check_installed(user: str, extra: str, *packages: str) -> None:
    """Raise ExtraMissing if one of ``packages``, which other processes import, is missing."""
    for package in packages:
        if find_spec(package) is None:
            raise _missing(user, package, extra)


def import_quickly(module: str) -> ModuleType:
    """Import a module, without the garbage collector meanwhile, and return it.

    The many objects of imported modules stay. The collector would examine them again and again,
    which takes an eighth of the time of the imports.
    """
    was_enabled = gc.isenabled()
    gc.disable()
    try:
        return import_module(module)
    finally:
        if was_enabled:
            gc.enable()


def run_main(module: str, program: str, extra: str) -> None:
    """Import ``module`` and call its ``main``.

    If a library of ``extra`` is missing, end the process with a one-line error. The command
    ``program`` itself is installed even without the extra.
    """
    try:
        with needs_extra(f"{program}: the command", extra):
            main = import_quickly(module).main
        main()  # May raise ExtraMissing, too, when it imports modules that need another extra.
    except ExtraMissing as missing:
        sys.exit(str(missing))


def _missing(user: str, package: str, extra: str) -> ExtraMissing:
    remedy = f"pip install '{DISTRIBUTION}[{extra}]'"
    return ExtraMissing(f"{user} needs {package}: {remedy}", name=package)
