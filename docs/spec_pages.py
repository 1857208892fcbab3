"""Add pages outside docs/ to the documentation site. A hook of mkdocs; reads files.

The hook adds the pages of spec/, and each file of the repository that a page of docs/ links to. A
page in Markdown is added as it is. For any other file, a page that shows its text is added. So the
links work in a checkout and in the site, whatever the site's address is.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files, InclusionLevel

ROOT = Path(__file__).parents[1]

_OUT_OF_DOCS = re.compile(r"\]\(\.\./([^)#\s]+)")
"""A link from a page directly in docs/ to another folder of the repository."""

_INTO_DOCS = re.compile(r"\]\(((?:\.\./)+)docs/")
"""A link from another folder of the repository to a page of docs/."""


def on_files(files: Files, *, config: MkDocsConfig) -> Files:
    """Add each page of spec/, and each file that a page links to, under its path in the site."""
    for page in sorted((ROOT / "spec").rglob("*.md")):
        path = page.relative_to(ROOT).as_posix()
        files.append(File(path, str(ROOT), config.site_dir, config.use_directory_urls))
    for path in sorted(linked_files()):
        if path.startswith("spec/"):
            continue  # Added above.
        text = (ROOT / path).read_text()
        source = _page(path)
        content = text if source == path else _shown(path, text)
        file = File.generated(config, source, content=content)
        file.inclusion = InclusionLevel.NOT_IN_NAV
        files.append(file)
    return files


def on_page_markdown(markdown: str, *, page: Any, **_: Any) -> str:
    """Rewrite links between docs/ and other folders: the site has them inside docs/."""
    if "/" in page.file.src_uri:  # A page of the folder spec/
        return _INTO_DOCS.sub(r"](\1", markdown)
    return _OUT_OF_DOCS.sub(lambda link: f"]({_page(link[1])}", markdown)


def linked_files() -> set[str]:
    """Return the files outside docs/ to which the pages link, as paths in the repository."""
    pages = (ROOT / "docs").glob("*.md")
    return {path for page in pages for path in _OUT_OF_DOCS.findall(page.read_text())}


def _page(path: str) -> str:
    """Return the source path of the page that shows a file."""
    return path if path.endswith(".md") else f"{path}.md"


def _shown(path: str, text: str) -> str:
    """Return a page with the text of a file."""
    language = Path(path).suffix.removeprefix(".")
    return f"# {Path(path).name}\n\n`{path}` in the repository:\n\n````{language}\n{text}````\n"
