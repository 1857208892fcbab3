"""Complete the commands that messages suggest with the options that name the cluster.

A message that suggests a command ends with it: ``…; find the cause with: waltz doctor``. If the
user has named the cluster by options, the suggested command needs the same options: without them it
would work on another cluster.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar

_OPTIONS: ContextVar[tuple[str, ...]] = ContextVar("options", default=())
"""The options on the command line of the running verb that name the cluster, word by word."""
_COMMAND_AT_END = re.compile(
    r"\bwith: waltz (access|bench|cluster|doctor|log|server|storage|top)\b"
    r"([^,;().]|,(?! )|\.(?=\S))*$"
)
"""Matches a command at the end of a message, if it begins with one of these nouns and verbs.

They are those of the suggested commands that work on a cluster. The message must end with the
command: a semicolon, a parenthesis, or a comma or period with a blank after it shows that more
words follow. A comma or period without a blank is part of the command, such as in the ranges 0-3,7.
"""


@contextmanager
def options_given(options: Sequence[str]) -> Iterator[None]:
    """Let `suggested` and `complete` add ``options`` while the context is open."""
    token = _OPTIONS.set(tuple(options))
    try:
        yield
    finally:
        _OPTIONS.reset(token)


def suggested(command: str, options: Sequence[str] | None = None) -> str:
    """Return ``command`` followed by ``options``, by default those of the running verb."""
    if options is None:
        options = _OPTIONS.get()
    return " ".join([command, *map(shlex.quote, options)])


def complete(message: str) -> str:
    """Return ``message``; if it ends with a command, the options of the running verb are added.

    This is for messages of `waltz.admin`, which does not know the command line.
    """
    return suggested(message) if _COMMAND_AT_END.search(message) else message
