"""Pure. Lists of texts for a log line."""

from __future__ import annotations

from collections.abc import Sequence

_LOGGED_TEXTS = 10
"""How many texts a log line lists."""


def listed(texts: Sequence[str], separator: str = "; ") -> str:
    """Return the first texts, divided by ``separator``, and how many more there are."""
    shown = list(texts[:_LOGGED_TEXTS])
    if len(texts) > len(shown):
        shown.append(f"{len(texts) - len(shown)} more")
    return separator.join(shown)
