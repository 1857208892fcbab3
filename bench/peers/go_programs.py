"""Build the programs in Go that measure a peer, or are its servers. Starts processes, writes files.

The built programs are kept in ``build/peers``.
"""

from __future__ import annotations

import shutil
from pathlib import Path

from bench.peers.measured import PeerMissing
from bench.peers.processes import CommandFailed, run_command

BUILT = Path(__file__).parents[2] / "build" / "peers"
"""The folder of everything that is built or fetched for the peers."""


async def go_program(name: str, source: Path, package: str = ".") -> Path:
    """Return the path of the program of ``package`` in the Go module ``source``.

    The program is built if it is missing or older than a file of the module. Raises PeerMissing.
    """
    built = BUILT / name
    if _is_current(built, source):
        return built
    go = shutil.which("go")
    if go is None:
        raise PeerMissing(
            "it needs programs in Go: install Go 1.26 or later, so that they are built"
        )
    BUILT.mkdir(parents=True, exist_ok=True)
    try:
        await run_command(go, "build", "-o", built, package, cwd=source)
    except CommandFailed as failure:
        print(failure)
        raise PeerMissing("Go could not build its programs") from failure
    # Go does not write the file if the program would stay the same. Without a new time, it would
    # seem to be older than its source.
    built.touch()
    return built


def _is_current(built: Path, source: Path) -> bool:
    """Whether a built program exists and is not older than any file of its source."""
    newest = max(path.stat().st_mtime for path in source.iterdir())
    return built.exists() and built.stat().st_mtime >= newest


async def go_server(name: str, source: Path, package: str) -> Path:
    """Return the path of a server: the one on the PATH, otherwise `go_program`."""
    installed = shutil.which(name)
    return Path(installed) if installed else await go_program(name, source, package)
