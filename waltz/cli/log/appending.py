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
    """Append all ``contents`` to ``partition``, at most ``in_flight`` at once; return their number.

    The ids are printed in the order of the contents. If appends fail, the error of the first of
    them is raised, and all other errors are printed. Otherwise an error of ``contents`` is raised.
    """
    count = 0
    with progress("transactions appended", None) as advance:
        appends = _AppendsInFlight(partition, output, advance)
        try:
            async for content in contents:
                appends.tasks.append(asyncio.create_task(append(content)))
                count += 1
                # Leaves room for the next append.
                await appends.finish_oldest(max_left=in_flight - 1)
        except asyncio.CancelledError:  # Ctrl-C: do not wait for the appends in flight.
            for task in appends.tasks:
                task.cancel()
            raise
        except Exception as error:
            # ``contents`` or an append has failed. The user needs the ids of the other appends.
            await appends.finish_all(error)
        else:
            await appends.finish_all(None)
    return count


@dataclass(slots=True)
class _AppendsInFlight:
    """The appends of one command whose ids are not printed yet, in the order of their contents."""

    partition: int
    output: OutputFormat
    advance: Callable[[int], None]
    tasks: list[asyncio.Task[int]] = field(default_factory=list)

    async def finish_oldest(self, max_left: int) -> None:
        """Wait for the oldest appends and print their ids, until at most ``max_left`` are left.

        Raises the error of an append.
        """
        while len(self.tasks) > max_left:
            transaction_id = await self.tasks[0]
            # A failed append stays in the list: `finish_all` needs the errors of all appends.
            del self.tasks[0]
            self._print_id(transaction_id)

    async def finish_all(self, error: Exception | None) -> None:
        """Wait for all appends, and print their ids; raise the error of the first one that failed.

        ``error`` is the error that ended the command early, None if there is none. If it is not the
        error of an append, it is raised only if no append has failed. All errors that are not
        raised are printed, because each may name an append that is in doubt.
        """
        failures: list[BaseException] = []
        for outcome in await asyncio.gather(*self.tasks, return_exceptions=True):
            if isinstance(outcome, BaseException):
                failures.append(outcome)
            else:
                self._print_id(outcome)
        is_error_of_append = any(error is failure for failure in failures)
        other_error = None if is_error_of_append else error
        if failures:
            for failure in failures[1:]:
                say(f"another append failed: {error_text(failure)}")
            if other_error is not None:
                say(f"another error: {error_text(other_error)}")
            raise failures[0]
        if other_error is not None:
            raise other_error

    def _print_id(self, transaction_id: int) -> None:
        """Print the id of the next append, and count it as progress."""
        print_id(self.partition, transaction_id, self.output)
        self.advance(1)


def print_id(partition: int, transaction_id: int, output: OutputFormat) -> None:
    """Print the id of an appended transaction."""
    show_line(output, appended_value(partition, transaction_id), str(transaction_id))


def appended_value(partition: int, transaction_id: int) -> rows.AppendedTransaction:
    """Return the JSON value of an appended transaction."""
    return {"partition": partition, "id": transaction_id}
