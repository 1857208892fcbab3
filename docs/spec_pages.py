"""Add the pages of spec/ to the documentation site. A hook of mkdocs; reads files."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files

ROOT = Path(__file__).parents[1]

_INTO_SPEC = re.compile(r"\]\(\.\./spec/")
_OUT_OF_SPEC = re.compile(r"\]\((\.\./)+docs/")


def on_files(files: Files, *, config: MkDocsConfig) -> Files:
    """Add each page of spec/ under the same path in the site."""
    for page in sorted((ROOT / "spec").rglob("*.md")):
        path = page.relative_to(ROOT).as_posix()
        files.append(File(path, str(ROOT), config.site_dir, config.use_directory_urls))
    return files


def on_page_markdown(markdown: str, *, page: Any, **_: Any) -> str:
    """Rewrite links between docs/ and spec/, because only the site has spec/ inside docs/."""
    if page.file.src_uri.startswith("spec/"):
        return _OUT_OF_SPEC.sub("](../", markdown)
    return _INTO_SPEC.sub("](spec/", markdown)
