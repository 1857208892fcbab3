"""Complete the commands that messages suggest with the options that name the cluster.

A message ends with its command: ``…; find the cause with: waltz doctor``. The user may have named
the cluster by options, so that the command without them would reach another cluster.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar

_GIVEN: ContextVar[tuple[str, ...]] = ContextVar("given", default=())
"""The options of the running verb that name the cluster."""
_COMMAND_AT_END = re.compile(
    r"\bwith: waltz (access|bench|cluster|doctor|log|server|storage|top)\b([^,;()]|,(?! ))*$"
)
"""The command at the end of a message.

A comma and a blank end a command. A comma without a blank belongs to ranges, such as 0-3,7.
"""


@contextmanager
def options_given(given: Sequence[str]) -> Iterator[None]:
    """Let `suggested` add the options ``given`` while the context is open."""
    token = _GIVEN.set(tuple(given))
    try:
        yield
    finally:
        _GIVEN.reset(token)


def suggested(command: str, given: Sequence[str] | None = None) -> str:
    """Return ``command`` with the options ``given``, by default those of the running verb."""
    return " ".join([command, *map(shlex.quote, _GIVEN.get() if given is None else given)])


def complete(message: str) -> str:
    """Return ``message``, whose command at the end, if there is one, gets the options.

    This is for messages of `waltz.admin`, which does not know the command line.
    """
    return suggested(message) if _COMMAND_AT_END.search(message) else message
