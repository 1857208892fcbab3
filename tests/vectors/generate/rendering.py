"""Format JSON for people: a value stays on one line while it fits. Pure."""

from __future__ import annotations

import json
from typing import Any

_WIDTH = 120


def render(value: Any, indent: int = 0, taken: int = 0) -> str:
    """Return ``value`` as JSON. A list or map that does not fit a line has one line per item.

    ``taken`` is what already stands on its first line, beside the indentation.
    """
    flat = json.dumps(value)
    if not isinstance(value, dict | list) or not value or indent + taken + len(flat) <= _WIDTH:
        return flat
    if isinstance(value, dict):
        first, last = "{", "}"
        names = [f"{json.dumps(name)}: " for name in value]
        items = [
            name + render(item, indent + 1, len(name))
            for name, item in zip(names, value.values(), strict=True)
        ]
    else:
        first, last = "[", "]"
        items = [render(item, indent + 1) for item in value]
    pad = " " * indent
    body = ",\n".join(f"{pad} {item}" for item in items)
    return f"{first}\n{body}\n{pad}{last}"
