"""Append transactions for ``waltz log append``, and print their ids. Touches standard output."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Coroutine, Sequence
from dataclasses import dataclass, field
from typing import Any

from waltz.cli.log import rows
from waltz.cli.output import OutputFormat, say, show_line
from waltz.cli.progress import progress
from waltz.cli.running import error_text
from waltz.cli.suggested import suggested
from waltz.client import AppendUncertain, ClientClosed

Append = Callable[[bytes], Coroutine[Any, Any, int]]
"""Appends the data of one transaction, and returns its id."""


async def append_all(
    partition: int,
    append: Append,
    contents: AsyncIterator[bytes],
    in_flight: int,
    output: OutputFormat,
    close: Callable[[], Coroutine[Any, Any, None]],
) -> int:
    """Append all ``contents`` to ``partition``, at most ``in_flight`` at once; return their number.

    The ids are printed in the order of the contents. If appends fail, the error of the first of
    them is raised, and all other errors are printed. Otherwise an error of ``contents`` is raised.

    ``close`` closes the client, so that each call of ``append`` ends. If this call is cancelled, by
    Ctrl-C, it calls ``close``, and prints the ids and the errors of all appends.
    """
    count = 0
    with progress("transactions appended", None) as advance:
        appends = _AppendsInFlight(partition, output, advance)
        try:
            error: Exception | None = None
            try:
                async for content in contents:
                    appends.tasks.append(asyncio.create_task(append(content)))
                    count += 1
                    # Leaves room for the next append.
                    await appends.finish_oldest(max_left=in_flight - 1)
            except Exception as problem:
                # ``contents`` or an append has failed. The user needs the ids of the other appends.
                error = problem
            await appends.finish_all(error)
        except asyncio.CancelledError:
            # An append in flight may get into the log. Without its request id, the user could not
            # find its outcome, and might append the same data again.
            await appends.end_all(close)
            raise
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
            await self._wait(self.tasks[:1])
            transaction_id = self.tasks[0].result()
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
        for outcome in await self._outcomes():
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

    async def end_all(self, close: Callable[[], Coroutine[Any, Any, None]]) -> None:
        """End all appends by ``close``; print their ids, and the error of each that was sent."""
        closing = asyncio.create_task(close())
        num_absent = 0
        # The appends end as soon as ``close`` begins. It may last until ZooKeeper answers.
        for outcome in await self._outcomes():
            if isinstance(outcome, ClientClosed):
                num_absent += 1
            elif isinstance(outcome, AppendUncertain):
                # Not the text of the error: its reason is that the client is closed.
                find_command = suggested(f"waltz log find {outcome.req_id}")
                say(
                    f"an append is in doubt: before you repeat it, find its outcome: {find_command}"
                )
            elif isinstance(outcome, BaseException):
                say(f"an append failed: {error_text(outcome)}")
            else:
                self._print_id(outcome)
        if num_absent:
            say(f"appends that are not in the log, and never will be: {num_absent}")
        await closing

    async def _outcomes(self) -> list[int | BaseException]:
        """Wait for all appends; return the id or the error of each."""
        await self._wait(self.tasks)
        return await asyncio.gather(*self.tasks, return_exceptions=True)

    async def _wait(self, tasks: Sequence[asyncio.Task[int]]) -> None:
        """Wait until ``tasks`` are done. If this call is cancelled, they continue."""
        if tasks:
            await asyncio.wait(tasks)

    def _print_id(self, transaction_id: int) -> None:
        """Print the id of the next append, and count it as progress."""
        value = appended_value(self.partition, transaction_id)
        show_line(self.output, value, str(transaction_id))
        self.advance(1)


def appended_value(partition: int, transaction_id: int) -> rows.AppendedTransaction:
    """Return the JSON value of an appended transaction."""
    return {"partition": partition, "id": transaction_id}
