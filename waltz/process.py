"""What the server and the storage process have in common: logging, ports file, the event loop."""

from __future__ import annotations

import asyncio
import json
import logging
import os
import sys
from collections.abc import Coroutine, Mapping
from pathlib import Path
from typing import Any


def set_up_logging(*, verbose: bool) -> None:
    """Log to standard error, with times; libraries speak up only when something is wrong."""
    logging.basicConfig(
        level=logging.DEBUG if verbose else logging.INFO,
        format="%(asctime)s %(levelname)-7s %(name)s: %(message)s",
        stream=sys.stderr,
    )
    for chatty in ("kazoo", "aiohttp.access", "asyncio"):
        logging.getLogger(chatty).setLevel(logging.WARNING)


def run_loop(main: Coroutine[Any, Any, None]) -> None:
    """Run ``main`` to its end, on uvloop where it is installed."""
    try:
        import uvloop
    except ImportError:
        asyncio.run(main)
    else:
        uvloop.run(main)


def report_ports(what: str, ports: Mapping[str, int | None], file: Path | None) -> None:
    """Say which ports are in use, in the log and in ``file``, which appears all at once."""
    shown = " ".join(f"{name}={number}" for name, number in ports.items() if number is not None)
    logging.getLogger("waltz").info("%s ready: %s", what, shown)
    if file is not None:
        part = file.with_name(f"{file.name}.{os.getpid()}")
        part.write_text(json.dumps(ports))
        part.replace(file)


async def run_until_done(work: Coroutine[Any, Any, None], stop: asyncio.Event) -> None:
    """Return when ``stop`` is set; if ``work`` ends before, return or raise as it does."""
    working = asyncio.ensure_future(work)
    stopping = asyncio.ensure_future(stop.wait())
    await asyncio.wait((working, stopping), return_when=asyncio.FIRST_COMPLETED)
    stopping.cancel()
    if working.done():
        working.result()
    else:
        working.cancel()
        await asyncio.wait([working])
