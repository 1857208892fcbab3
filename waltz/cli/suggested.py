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

_OPTIONS: ContextVar[tuple[str, ...]] = ContextVar("options", default=())
"""The options of the running verb that name the cluster, as words of the command line."""
_COMMAND_AT_END = re.compile(
    r"\bwith: waltz (access|bench|cluster|doctor|log|server|storage|top)\b([^,;()]|,(?! ))*$"
)
"""The command at the end of a message, with one of the nouns and verbs that messages suggest.

A semicolon, a parenthesis, or a comma and a blank would end the command before the message's end. A
comma without a blank belongs to ranges, such as 0-3,7.
"""


@contextmanager
def options_given(options: Sequence[str]) -> Iterator[None]:
    """Let `suggested` add ``options`` while the context is open."""
    token = _OPTIONS.set(tuple(options))
    try:
        yield
    finally:
        _OPTIONS.reset(token)


def suggested(command: str, options: Sequence[str] | None = None) -> str:
    """Return ``command`` with ``options``, by default those of the running verb."""
    if options is None:
        options = _OPTIONS.get()
    return " ".join([command, *map(shlex.quote, options)])


def complete(message: str) -> str:
    """Return ``message``; if a command ends it, with the options of the running verb.

    This is for messages of `waltz.admin`, which does not know the command line.
    """
    return suggested(message) if _COMMAND_AT_END.search(message) else message
