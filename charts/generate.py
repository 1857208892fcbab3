"""Generate the chart's README and dashboard by ``python -m charts.generate``.

Writes files in ``charts/waltz``. A test compares the files in the repository with the generated
texts.
"""

from __future__ import annotations

from pathlib import Path

from charts import readme
from charts.dashboard import dashboard

CHART = Path(__file__).parent / "waltz"


def files() -> dict[Path, str]:
    """Return the generated text of each file."""
    return {
        CHART / "README.md": readme.render(CHART),
        CHART / "files" / "dashboard.json": dashboard(),
    }


if __name__ == "__main__":
    for file, text in files().items():
        file.write_text(text)
