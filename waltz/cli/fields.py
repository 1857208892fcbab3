"""Declare at each verb the fields of the JSON that it prints. Touches nothing.

`prints` declares the class of a verb's result: a dataclass that `waltz.cli.rows` renders, or a
TypedDict. `docs.reference` writes the fields into `docs/commands.md`. Scripts use the names of the
fields, so a test compares them with a recorded list.
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

_KIND_OF_TYPE: Mapping[Any, str] = {
    bool: "true or false",
    int: "integer",
    float: "number",
    Any: "any value",
    NoneType: "null",
}


class ResultForm(StrEnum):
    """How a verb prints its result in JSON."""

    OBJECT = "object"
    """One object."""
    LIST = "list"
    """One list of objects."""
    LINES = "lines"
    """Any number of objects, one in each line."""


@dataclass(frozen=True, slots=True)
class Printed:
    """The result of a verb: objects of the class ``row``."""

    row: type
    form: ResultForm


@dataclass(frozen=True, slots=True)
class Field:
    """One field of a JSON value.

    ``name`` is the name that templates use: for a nested field, the names of the fields above it
    come first, separated by dots. ``kind`` describes its values, such as ``list of integers``.
    """

    name: str
    kind: str


def prints(row_class: type, form: ResultForm = ResultForm.OBJECT) -> Callable[[F], F]:
    """Declare that the decorated verb prints objects of the class ``row_class``."""

    def declare(verb: F) -> F:
        vars(verb)["printed"] = Printed(row_class, form)
        return verb

    return declare


def printed_by(command: Any) -> Printed | None:
    """Return what `prints` has declared for a command of ``waltz``, None if it declared nothing."""
    declared = getattr(command.callback, "printed", None)
    return declared if isinstance(declared, Printed) else None


def fields_of(row_class: type, prefix: str = "") -> Iterator[Field]:
    """Yield the fields of the JSON value of ``row_class``, each before the fields nested in it.

    All names begin with ``prefix``. In a name, NAME stands for each key of a mapping.
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
        # The annotations are texts. The names in them are those of the class's module.
        names = vars(sys.modules[row_class.__module__])
        return list(get_type_hints(row_class, globalns=names, include_extras=True).items())
    return json_fields(row_class)


def _nested(hint: Any) -> tuple[type, bool] | None:
    """Return the class of the objects in a field with the annotation ``hint``.

    The second value is whether the objects are the values of a mapping. None: the field has no
    objects with declared fields.
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
    """Return `Field.kind` of a field with the annotation ``hint``."""
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
    return _KIND_OF_TYPE.get(hint, "text")


def _kinds(hint: Any) -> str:
    """Return the plural of the kind of ``hint``, such as ``integers`` or ``lists of texts``."""
    kind = _kind(hint)
    if kind.startswith("list of "):
        return kind.replace("list", "lists", 1)
    return f"{kind}s"


def _is_mapping(origin: Any) -> bool:
    """Whether ``origin``, the `get_origin` of an annotation, is a class of mappings."""
    return isinstance(origin, type) and issubclass(origin, Mapping)
