"""Check that the packages that `waltz.spark` needs are installed. Searches for modules."""

from __future__ import annotations

from collections.abc import Callable
from importlib.util import find_spec

_PACKAGES = ("pyspark", "pyarrow", "numpy", "pandas", "fastavro")


def check_packages(find: Callable[[str], object | None] = find_spec) -> None:
    """Raise ImportError if packages are missing; the message has the command to install them."""
    missing = [name for name in _PACKAGES if find(name) is None]
    if missing:
        extra = "spark" if "pyspark" in missing else "spark-connector"
        raise ImportError(
            f"waltz.spark needs {' and '.join(missing)}: pip install 'waltz-log[{extra}]'. If the "
            "workers of Spark use another Python, install the packages there, too"
        )
