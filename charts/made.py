"""Generate the chart's README and dashboard: ``python -m charts.made``. Writes in ``charts/waltz``.

A test compares the files in the repository with the generated texts.
"""

from __future__ import annotations

from pathlib import Path

from charts import readme
from charts.dashboard import dashboard

CHART = Path(__file__).parent / "waltz"


def files() -> dict[Path, str]:
    """Return the generated text of each file."""
    return {
        CHART / "README.md": readme.read(CHART),
        CHART / "files" / "dashboard.json": dashboard(),
    }


if __name__ == "__main__":
    for file, text in files().items():
        file.write_text(text)
