"""Value types of settings and of Spark's options: convert text or a YAML value. Pure.

The conversions of pydantic are not used: they accept more than the documented values (``yes`` for
true, true for 1, "1.0" for 1), and their error texts differ from those of Spark's options.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

_LARGEST = (1 << 63) - 1
"""The largest absolute value of a whole number: the largest signed 64-bit integer."""
_WHOLE_NUMBER = re.compile(r"\s*[+-]?[0-9]+\s*")


@dataclass(frozen=True, slots=True)
class ValueType:
    """A type of values: its name in the documentation, and the conversion of a value to the type.

    Calling a type converts a value. ValueError means that the conversion is impossible; its text
    names the expected values.
    """

    name: str
    convert: Callable[[Any], Any]

    def __call__(self, value: Any) -> Any:
        """Return ``value`` converted to this type; raises ValueError."""
        return self.convert(value)


def _integer(value: Any) -> int:
    expected = "expected a whole number"
    if isinstance(value, str):
        # `int` also accepts underscores, and the digits of other scripts.
        is_whole = _WHOLE_NUMBER.fullmatch(value) is not None
    elif isinstance(value, float):
        is_whole = value.is_integer()
    else:
        is_whole = isinstance(value, int) and not isinstance(value, bool)
    if not is_whole:
        raise ValueError(expected)
    try:
        number = int(value)
    except ValueError:  # A text of thousands of digits.
        raise ValueError(expected) from None
    if abs(number) > _LARGEST:
        raise ValueError(f"expected a whole number up to {_LARGEST}")
    return number


def _positive(value: Any) -> int:
    number = _integer(value)
    if number <= 0:
        raise ValueError("expected a number above 0")
    return number


def _not_negative(value: Any) -> int:
    number = _integer(value)
    if number < 0:
        raise ValueError("expected a number from 0 on")
    return number


def _port(value: Any) -> int:
    number = _integer(value)
    if not 0 <= number <= 65535:
        raise ValueError("expected a port between 0 and 65535")
    return number


def _boolean(value: Any) -> bool:
    if isinstance(value, bool):
        return value
    if str(value).lower() in ("true", "false"):
        return str(value).lower() == "true"
    raise ValueError("expected true or false")


def _text(value: Any) -> str:
    # Some YAML values look like text, but are not: ``on`` is true, and ``[x]`` is a list.
    if isinstance(value, bool | list | bytes):
        raise ValueError("expected text")
    if value is None or not str(value).strip():
        raise ValueError("must not be empty")
    return str(value)


def _file(value: Any) -> Path:
    # None passes this check, because the error of `_text` says that the value is empty.
    if not isinstance(value, str | Path | None) or "\0" in str(value):
        raise ValueError("expected a path")
    return Path(_text(value))


def _names(value: Any) -> tuple[str, ...]:
    parts = value if isinstance(value, list) else _text(value).split(",")
    if not parts or not all(isinstance(part, str) and part.strip() for part in parts):
        raise ValueError("expected names, separated by commas")
    return tuple(part.strip() for part in parts)


integer = ValueType("whole number", _integer)
positive = ValueType("number above 0", _positive)
not_negative = ValueType("number from 0 on", _not_negative)
port = ValueType("port", _port)
boolean = ValueType("true or false", _boolean)
text = ValueType("text", _text)
file = ValueType("path", _file)
names = ValueType("names", _names)


def one_of(*choices: str) -> ValueType:
    """Return the type of values that are one of ``choices``."""

    def convert(value: Any) -> str:
        if value not in choices:
            raise ValueError(f"expected one of {', '.join(choices)}")
        return str(value)

    return ValueType(" or ".join(choices), convert)
