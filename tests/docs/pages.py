"""List the pages of the documentation, and the test that runs the commands of each. Pure."""

from __future__ import annotations

from pathlib import Path

from docs.reference import PAGES as MADE

ROOT = Path(__file__).parents[2]
PAGES = {
    str(page.relative_to(ROOT)): page
    for page in (
        ROOT / "README.md",
        *sorted((ROOT / "docs").glob("*.md")),
        ROOT / "examples/README.md",
        *sorted((ROOT / "spec").rglob("*.md")),
    )
}
"""Every page, by its path in the repository."""

TYPED = {
    "README.md": "test_docs_local",
    "docs/client.md": "test_docs_client",
    "docs/faults.md": "test_docs_operations",
    "docs/migration.md": "test_docs_operations",
    "docs/operations.md": "test_docs_operations",
    "docs/quickstart.md": "test_docs_local",
    "docs/testing.md": "test_docs_testing",
    "docs/tutorial.md": "test_docs_local",
    "examples/README.md": "test_docs_local",
}
"""Pages whose commands a test of this folder types, and which test."""

FROM_CODE = {f"docs/{name}" for name in MADE}
"""Pages made from the code; their examples are those of ``--help``."""

ELSEWHERE = {"docs/spark.md", "docs/kubernetes.md"}
"""Pages whose commands need what only the tests of `tests/spark` and of ``e2e`` have."""

ON_KUBERNETES = {"docs/tutorial.md": "8. On Kubernetes"}
"""The section of a page of `TYPED` that needs a Kubernetes: ``e2e`` types its commands."""
