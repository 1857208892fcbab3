"""The fields of the JSON that a verb prints, declared at the verb. Touches nothing.

`prints` declares the class of a verb's result: a dataclass that `waltz.cli.rows` renders, or a
TypedDict. `docs.reference` writes the fields into `docs/commands.md`, and a test compares them with
a recorded list, because scripts use their names.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, is_dataclass
from enum import Enum, StrEnum
from types import NoneType, UnionType
from typing import (
    Annotated,
    Any,
    TypeVar,
    Union,
    get_args,
    get_origin,
    get_type_hints,
    is_typeddict,
)

from waltz.cli.rows import json_fields

F = TypeVar("F", bound=Callable[..., Any])

_KINDS: Mapping[Any, str] = {
    bool: "true or false",
    int: "integer",
    float: "number",
    Any: "any value",
    NoneType: "null",
}


class ResultForm(StrEnum):
    """How many results a verb prints."""

    OBJECT = "object"
    LIST = "list"
    LINES = "lines"
    """One object after the other: in JSON, one in each line."""


@dataclass(frozen=True, slots=True)
class Printed:
    """The result of a verb: objects of the class ``row``."""

    row: type
    form: ResultForm


@dataclass(frozen=True, slots=True)
class Field:
    """One field: its name in templates, with dots before nested fields, and its kind."""

    name: str
    kind: str


def prints(row_class: type, form: ResultForm = ResultForm.OBJECT) -> Callable[[F], F]:
    """Declare that the decorated verb prints objects of the class ``row_class``."""

    def declare(verb: F) -> F:
        vars(verb)["printed"] = Printed(row_class, form)
        return verb

    return declare


def printed_by(command: Any) -> Printed | None:
    """Return what a command of ``waltz`` prints, None if that is not declared."""
    found = getattr(command.callback, "printed", None)
    return found if isinstance(found, Printed) else None


def fields_of(row_class: type, prefix: str = "") -> Iterator[Field]:
    """Yield the fields of the JSON value of ``row_class``, each before the fields nested in it.

    In a field's name, NAME stands for each key of a mapping.
    """
    for name, hint in _hints(row_class):
        path = f"{prefix}{name}"
        yield Field(path, _kind(hint))
        nested = _nested(hint)
        if nested is not None:
            nested_row, by_name = nested
            yield from fields_of(nested_row, f"{path}.NAME." if by_name else f"{path}.")


def _hints(row_class: type) -> list[tuple[str, Any]]:
    """Return the name and the annotation of each field in the JSON value of ``row_class``."""
    if is_typeddict(row_class):
        names = vars(sys.modules[row_class.__module__])
        return list(get_type_hints(row_class, globalns=names, include_extras=True).items())
    return json_fields(row_class)


def _nested(hint: Any) -> tuple[type, bool] | None:
    """Return the class of the objects in a field, and whether a mapping from names holds them.

    None if the field has no objects with declared fields.
    """
    origin, arguments = get_origin(hint), get_args(hint)
    if isinstance(hint, type) and (is_dataclass(hint) or is_typeddict(hint)):
        return hint, False
    for argument in arguments:
        inner = _nested(argument)
        if inner is not None:
            row_class, by_name = inner
            return row_class, by_name or _is_mapping(origin)
    return None


def _kind(hint: Any) -> str:
    """Return the kind of a field's value in JSON."""
    origin, arguments = get_origin(hint), get_args(hint)
    if origin is Annotated or getattr(origin, "__name__", "") in ("Required", "NotRequired"):
        return _kind(arguments[0])
    if origin in (Union, UnionType):
        # `dict.fromkeys` drops repeated kinds and keeps their order.
        return " or ".join(dict.fromkeys(_kind(argument) for argument in arguments))
    if _is_mapping(origin):
        return f"object of {_kinds(arguments[1])} by name"
    if origin in (tuple, list):
        return f"list of {_kinds(arguments[0])}"
    if isinstance(hint, type) and issubclass(hint, Enum):
        return ", ".join(f"`{member.value}`" for member in hint)
    if isinstance(hint, type) and (is_dataclass(hint) or is_typeddict(hint)):
        return "object"
    # The remaining types, such as UUID, are texts in JSON.
    return _KINDS.get(hint, "text")


def _kinds(hint: Any) -> str:
    """Return the plural of `_kind`."""
    kind = _kind(hint)
    inner = kind.removeprefix("list of ")
    return f"{kind}s" if inner == kind else f"lists of {inner}"


def _is_mapping(origin: Any) -> bool:
    return isinstance(origin, type) and issubclass(origin, Mapping)
