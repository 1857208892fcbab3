"""Write the vectors of this project to spec/vectors: ``python -m tests.vectors.generate``."""

from __future__ import annotations

from pathlib import Path

from tests.vectors.generate.files import FILES
from tests.vectors.generate.rendering import render

FOLDER = Path(__file__).parents[3] / "spec" / "vectors"

if __name__ == "__main__":
    for name, make in FILES.items():
        (FOLDER / name).write_text(render(make()) + "\n")
        print(f"spec/vectors/{name}")
