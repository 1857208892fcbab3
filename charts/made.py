"""Writes what in the chart is made: ``python -m charts.made``. Writes files in ``charts/waltz``.

A test compares them with what it would write.
"""

from __future__ import annotations

from pathlib import Path

from charts import readme
from charts.dashboard import dashboard

CHART = Path(__file__).parent / "waltz"


def files() -> dict[Path, str]:
    """Return what is made, and where."""
    return {
        CHART / "README.md": readme.read(CHART),
        CHART / "files" / "dashboard.json": dashboard(),
    }


if __name__ == "__main__":
    for file, text in files().items():
        file.write_text(text)
