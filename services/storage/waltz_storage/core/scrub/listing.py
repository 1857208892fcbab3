"""Pure. Lists of texts for a log line."""

from __future__ import annotations

from collections.abc import Sequence

_LOGGED_TEXTS = 10
"""How many texts a log line lists."""


def listed(texts: Sequence[str]) -> str:
    """Return the first texts, and how many more there are."""
    more = len(texts) - _LOGGED_TEXTS
    return "; ".join((*texts[:_LOGGED_TEXTS], *((f"{more} more",) if more > 0 else ())))
