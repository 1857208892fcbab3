"""Append transactions for ``waltz log append``, and print their ids. Touches standard output."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Coroutine
from dataclasses import dataclass, field
from typing import Any

from waltz.cli.log import rows
from waltz.cli.output import OutputFormat, say, show_line
from waltz.cli.progress import progress
from waltz.cli.running import error_text

Append = Callable[[bytes], Coroutine[Any, Any, int]]
"""Appends the data of one transaction, and returns its id."""


async def append_all(
    partition: int,
    append: Append,
    contents: AsyncIterator[bytes],
    in_flight: int,
    output: OutputFormat,
) -> int:
    """Append all contents; print the ids in the order of the contents. Return their number.

    Raises the error of the first append that fails, otherwise that of ``contents``; the others are
    printed.
    """
    count = 0
    with progress("transactions appended", None) as advance:
        appends = _AppendsInFlight(partition, output, advance)
        try:
            async for content in contents:
                appends.tasks.append(asyncio.create_task(append(content)))
                count += 1
                await appends.finish_all_but(in_flight - 1)  # Leaves room for the next append.
        except asyncio.CancelledError:  # Ctrl-C: do not wait for the other appends.
            for task in appends.tasks:
                task.cancel()
            raise
        except Exception as error:
            # A malformed input or a failed append: the user needs the ids of the other appends.
            await appends.finish_all(error)
        else:
            await appends.finish_all(None)
    return count


@dataclass(slots=True)
class _AppendsInFlight:
    """The appends of one command that are not printed yet, in the order of their contents."""

    partition: int
    output: OutputFormat
    advance: Callable[[int], None]
    tasks: list[asyncio.Task[int]] = field(default_factory=list)

    async def finish_all_but(self, most: int) -> None:
        """Wait for the oldest appends until at most ``most`` are in flight; print their ids."""
        while len(self.tasks) > most:
            transaction_id = await self.tasks[0]
            del self.tasks[0]  # Not earlier: `finish_all` needs the errors of all appends.
            self._print_id(transaction_id)

    async def finish_all(self, error: Exception | None) -> None:
        """Wait for all appends, and print their ids; raise the error of the first one that failed.

        ``error`` is what ended the command early: the error of an append, or another one, which is
        raised only if no append has failed. The errors that are not raised are shown, because each
        may name an append that is in doubt.
        """
        failures: list[BaseException] = []
        for outcome in await asyncio.gather(*self.tasks, return_exceptions=True):
            if isinstance(outcome, BaseException):
                failures.append(outcome)
            else:
                self._print_id(outcome)
        for failure in failures[1:]:
            say(f"another append failed: {error_text(failure)}")
        if error is not None and not any(error is failure for failure in failures):
            if not failures:
                raise error
            say(f"another error: {error_text(error)}")
        if failures:
            raise failures[0]

    def _print_id(self, transaction_id: int) -> None:
        print_id(self.partition, transaction_id, self.output)
        self.advance(1)


def print_id(partition: int, transaction_id: int, output: OutputFormat) -> None:
    """Print the id of an appended transaction."""
    show_line(output, appended_value(partition, transaction_id), str(transaction_id))


def appended_value(partition: int, transaction_id: int) -> rows.AppendedTransaction:
    """Return the JSON value of an appended transaction."""
    return {"partition": partition, "id": transaction_id}
