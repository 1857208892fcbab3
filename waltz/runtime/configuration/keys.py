"""What a setting is: its name, its type, its default, what it means. Pure."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

_LARGEST = (1 << 63) - 1


class _Required:
    """Marks a key that has no default."""


REQUIRED = _Required()


@dataclass(frozen=True, slots=True)
class Kind:
    """A type of values: what people call it, and how text or a YAML value becomes one.

    Calling it returns the value, or raises ValueError or TypeError with what is wanted.
    """

    name: str
    parse: Callable[[Any], Any]

    def __call__(self, value: Any) -> Any:
        """Return what ``value`` means."""
        return self.parse(value)


@dataclass(frozen=True, slots=True)
class Key:
    """One setting: its dotted name, how its text is parsed, its default, what it means."""

    name: str
    parse: Callable[[Any], Any]
    default: Any = REQUIRED
    meaning: str = ""

    @property
    def kind(self) -> str:
        """What the type of its values is called."""
        return self.parse.name if isinstance(self.parse, Kind) else "text"

    @property
    def required(self) -> bool:
        """Whether it has no default."""
        return self.default is REQUIRED


def _no_problems(values: Mapping[str, Any], ignored: Mapping[str, Any]) -> Iterable[str]:
    return ()


@dataclass(frozen=True, slots=True)
class Schema:
    """All settings of one kind of process.

    ``meaningless`` maps a key, or a prefix that ends in a dot, to why it has no effect here.
    ``problems`` returns a sentence for each thing that is wrong with the values together; it also
    gets the meaningless settings that were given, as they were written.
    """

    process: str
    keys: tuple[Key, ...]
    meaningless: Mapping[str, str]
    problems: Callable[[Mapping[str, Any], Mapping[str, Any]], Iterable[str]] = _no_problems

    def why_meaningless(self, name: str) -> str | None:
        """Return why the setting ``name`` has no effect, None if that is not known."""
        covers = (why for key, why in self.meaningless.items() if _covers(key, name))
        return next(covers, None)


def _covers(key: str, name: str) -> bool:
    return name == key or (key.endswith(".") and name.startswith(key))


def _integer(value: Any) -> int:
    wanted = "a whole number is wanted"
    if isinstance(value, bool) or (isinstance(value, float) and not value.is_integer()):
        raise ValueError(wanted)
    try:
        number = int(value)
    except (ValueError, TypeError, OverflowError):
        raise ValueError(wanted) from None
    if abs(number) > _LARGEST:
        raise ValueError(f"a whole number up to {_LARGEST} is wanted")
    return number


def _positive(value: Any) -> int:
    number = _integer(value)
    if number <= 0:
        raise ValueError("a number above 0 is wanted")
    return number


def _port(value: Any) -> int:
    number = _integer(value)
    if not 0 <= number <= 65535:
        raise ValueError("a port between 0 and 65535 is wanted")
    return number


def _boolean(value: Any) -> bool:
    if isinstance(value, bool):
        return value
    if str(value).lower() in ("true", "false"):
        return str(value).lower() == "true"
    raise ValueError("true or false is wanted")


def _text(value: Any) -> str:
    if value is None or not str(value).strip():
        raise ValueError("it must not be empty")
    return str(value)


def _file(value: Any) -> Path:
    path = _text(value)
    if not isinstance(value, str | Path) or "\0" in path:
        raise ValueError("a path is wanted")
    return Path(path)


integer = Kind("whole number", _integer)
positive = Kind("number above 0", _positive)
port = Kind("port", _port)
boolean = Kind("true or false", _boolean)
text = Kind("text", _text)
file = Kind("path", _file)


def one_of(*choices: str) -> Kind:
    """Return the type of values that are one of ``choices``."""

    def parse(value: Any) -> str:
        if value not in choices:
            raise ValueError(f"one of {', '.join(choices)} is wanted")
        return str(value)

    return Kind(" or ".join(choices), parse)
