"""Logging, signals and the event loop of a process. Touches the process itself.

An unexpected exception shows that an invariant is broken. Then the process must end, because it
could damage the log (tests/unit/runtime/test_process.py). Its peers continue without it. An OSError
is only logged: it reports a failure outside the process, such as a lost connection, and says
nothing about the invariants.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import logging
import os
import signal
import sys
from collections.abc import Callable, Coroutine, Mapping
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

from waltz.runtime.memory import favour_speed

T = TypeVar("T")

_SOFTWARE_ERROR = 70
"""The exit code after a broken invariant: EX_SOFTWARE of sysexits.h."""


class PortsFileFailed(OSError):
    """The file with the ports cannot be written. The text has the file, the reason, the remedy."""


def set_up_logging(*, verbose: bool) -> None:
    """Log to standard error, with times; with ``verbose``, also at the level DEBUG.

    Some libraries log much. Only their warnings and errors are logged.
    """
    logging.basicConfig(
        level=logging.DEBUG if verbose else logging.INFO,
        format="%(asctime)s %(levelname)-7s %(name)s: %(message)s",
        stream=sys.stderr,
    )
    for library in ("kazoo", "aiohttp.access", "asyncio"):
        logging.getLogger(library).setLevel(logging.WARNING)


def new_event_loop() -> asyncio.AbstractEventLoop:
    """Return a new event loop, that of uvloop if it is installed."""
    try:
        import uvloop
    except ImportError:
        return asyncio.new_event_loop()
    loop: asyncio.AbstractEventLoop = uvloop.new_event_loop()
    return loop


def run_loop(
    main: Coroutine[Any, Any, None], *, tune_memory: Callable[[], None] = favour_speed
) -> None:
    """Call ``tune_memory``; then run ``main`` to its end, on uvloop if that is installed.

    An unexpected exception in a callback of the event loop, or in a task that was passed to
    `fail_stop_on_error`, ends the process with exit code 70. An OSError there is only logged. An
    exception of ``main`` itself is raised.
    """
    if not __debug__:
        main.close()
        raise SystemExit(
            "python -O removes the assertions that protect the log: start it without python -O"
        )
    tune_memory()
    try:
        import uvloop
    except ImportError:
        asyncio.run(_fail_stop(main))
    else:
        uvloop.run(_fail_stop(main))


def fail_stop_on_error(
    task: asyncio.Task[T], expected: tuple[type[Exception], ...] = ()
) -> asyncio.Task[T]:
    """Make an exception that ends ``task`` end the process immediately; return ``task``.

    An OSError is logged immediately and does not end the process. An exception in ``expected`` is
    left to the code that awaits ``task``. Without this function, asyncio would report an exception
    only when the garbage collector finds the task.
    """
    task.add_done_callback(partial(_report_failure, expected))
    return task


async def _fail_stop(main: Coroutine[Any, Any, None]) -> None:
    """Run ``main``; `_handle_exception` handles the exceptions that asyncio reports meanwhile."""
    asyncio.get_running_loop().set_exception_handler(_handle_exception)
    await main


def _report_failure(expected: tuple[type[Exception], ...], task: asyncio.Task[Any]) -> None:
    """Pass the exception that ended ``task``, if any, to `_handle_exception`.

    An exception in ``expected`` is not passed on.
    """
    error = None if task.cancelled() else task.exception()
    if error is not None and not isinstance(error, expected):
        context = {"message": "a task failed", "exception": error, "task": task}
        task.get_loop().call_exception_handler(context)


def _handle_exception(loop: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
    """Log what asyncio reports; end the process if it is an exception other than an OSError."""
    error = context.get("exception")
    log = logging.getLogger("waltz")
    # An OSError comes from the operating system, for example a broken connection, or no file
    # descriptor for a new connection. It breaks no invariant: the process can continue. A failed
    # change of a storage's disk is no OSError here, but a DiskFailed, which ends the process.
    if error is None or isinstance(error, OSError):
        log.warning("%s: %s; continuing", context.get("message"), error)
        return
    log.critical("%s; ending the process", context.get("message"), exc_info=error)
    logging.shutdown()
    os._exit(_SOFTWARE_ERROR)


def report_ports(process: str, ports: Mapping[str, int | None], file: Path | None) -> None:
    """Write the ports of ``process`` to ``file``, and log them as ready.

    ``file`` is replaced atomically, so that a reader never sees a part of its text. Raises
    PortsFileFailed.
    """
    if file is not None:
        part = file.parent / f"{file.name}.{os.getpid()}"
        try:
            part.write_text(json.dumps(ports))
            part.replace(file)
        except OSError as error:
            with contextlib.suppress(OSError):
                part.unlink()
            raise PortsFileFailed(
                f"cannot write the ports to {file}: {error.strerror or error}; set "
                f"{process}.ports.file to a file in a directory that this process can write to"
            ) from error
    shown = " ".join(f"{name}={number}" for name, number in ports.items() if number is not None)
    logging.getLogger("waltz").info("%s ready: %s", process, shown)


def stop_signal() -> asyncio.Event:
    """Return an event. SIGTERM and SIGINT set the event instead of ending the process."""
    stop = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stop.set)
    return stop


async def run_until_done(work: Coroutine[Any, Any, None], stop: asyncio.Event) -> None:
    """Run ``work`` until it ends or ``stop`` is set.

    * If ``work`` ends first, its error is raised.
    * If ``stop`` is set first, ``work`` is cancelled, and this function returns when ``work`` has
      ended. If ``work`` fails while it is being cancelled, the error is not raised here. No code
      retrieves it, so asyncio passes it to `_handle_exception`, which ends the process unless the
      error is an OSError.
    """
    working = asyncio.ensure_future(work)
    stopping = asyncio.ensure_future(stop.wait())
    await asyncio.wait((working, stopping), return_when=asyncio.FIRST_COMPLETED)
    stopping.cancel()
    if working.done():
        working.result()
    else:
        working.cancel()
        await asyncio.wait([working])
