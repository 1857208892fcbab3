"""``python -m release``: build wheel, sdist, images and chart of one version.

Runs the Python modules `build` and `images`, and Helm. The images are written to ``build/images``,
everything else to ``dist``.
"""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path
from typing import Annotated

import typer

from release.versions import ROOT, differing_versions, is_in_changelog, project_version

DIST = ROOT / "dist"


def main(
    tag: Annotated[
        str,
        typer.Option(
            help="The git tag to release: v and the version. Without a tag, nothing is released."
        ),
    ] = "",
    images: Annotated[bool, typer.Option(help="Build the images, too.")] = True,
) -> None:
    """Build every artifact of one version; build nothing if a check fails."""
    # This command only builds. Pushing the tag releases the artifacts.
    version = project_version()
    problems = [f"{place} names version {other}" for place, other in differing_versions()]
    if tag and tag != f"v{version}":
        problems.append(f"the tag is {tag} instead of v{version}")
    if tag and not is_in_changelog(version):
        problems.append("CHANGELOG.md has no section for this version")
    if shutil.which("helm") is None:
        problems.append("helm, which packages the chart, is not on the PATH")
    if problems:
        sys.exit(f"version {version} cannot be released:\n  " + "\n  ".join(problems))
    shutil.rmtree(DIST, ignore_errors=True)
    _run(sys.executable, "-m", "build", "--outdir", str(DIST), str(ROOT))
    _run("helm", "package", str(ROOT / "charts/waltz"), "--destination", str(DIST))
    if images:
        _run(sys.executable, "-m", "images")
    for artifact in sorted(DIST.iterdir()):
        print(f"{artifact.relative_to(ROOT)}  {_kilobytes(artifact)} kB")
    print(
        f"version {version} is built" + ("" if tag else "; no tag was given, nothing is released")
    )


def _run(*command: str) -> None:
    """Run a command in the repository. Raises CalledProcessError if it fails."""
    subprocess.run(command, cwd=ROOT, check=True)


def _kilobytes(path: Path) -> int:
    """Return the size of a file in units of 1,000 bytes, rounded up."""
    return (path.stat().st_size + 999) // 1000


if __name__ == "__main__":
    typer.run(main)
