"""Fill a template with the fields of a result: ``-o template='{name} {id}'``. Touches nothing.

The fields are the keys of the result's JSON value. The syntax is that of ``str.format``. But a
field is only looked up in the JSON value: a template cannot read attributes of Python objects.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from string import Formatter
from typing import Any, Self

_Path = tuple[str, ...]
"""The keys that lead to a field, from the outermost one."""


class BadTemplate(ValueError):
    """The template is malformed, or does not fit the result. The text says why."""


@dataclass(frozen=True, slots=True)
class Template:
    """A template of one line, as a sequence of parts.

    Each part is a text and the path of the field that follows the text. The path is None if no
    field follows.
    """

    parts: tuple[tuple[str, _Path | None], ...]

    @classmethod
    def parse(cls, text: str) -> Self:
        """Return the template that ``text`` describes. Raises BadTemplate."""
        parts: list[tuple[str, _Path | None]] = []
        try:
            for literal, name, spec, conversion in Formatter().parse(text):
                if spec or conversion:
                    raise BadTemplate(
                        f"the field {name!r} is followed by a format: write only its name in braces"
                    )
                parts.append((literal, None if name is None else tuple(name.split("."))))
        except BadTemplate:
            raise  # It is a ValueError, too, and has its complete text already.
        except ValueError as problem:
            raise BadTemplate(
                f"{problem}: write a field as {{name}}, and a brace as {{{{ or }}}}"
            ) from problem
        if all(path is None for _, path in parts):
            raise BadTemplate("it has no field: write each field in braces, such as {name}")
        return cls(tuple(parts))

    def lines(self, value: Any) -> list[str]:
        """Return one line for each row of a result's JSON value. Raises BadTemplate.

        A result that is a list has one row for each item, any other result has one row. If the
        template names a field of the items of a list within a row, there is one row for each of
        these items instead: with ``{storage} {partitions.session}``, ``waltz storage list`` prints
        a line for each replica.
        """
        paths = tuple(path for _, path in self.parts if path is not None)
        results = value if isinstance(value, list) else [value]
        try:
            rows = [row for result in results for row in _rows(result, paths)]
            return [self._line(row) for row in rows]
        except LookupError as unknown:
            known = dict.fromkeys(field for result in results for field in _fields(result))
            raise BadTemplate(
                f"the result has no field {unknown.args[0]!r}; its fields are: {', '.join(known)}"
            ) from None

    def _line(self, row: Any) -> str:
        """Return the line for ``row``. Raises LookupError."""
        return "".join(
            literal if path is None else literal + _text(_at(row, path))
            for literal, path in self.parts
        )


def _rows(value: Any, paths: Sequence[_Path]) -> Iterator[Any]:
    """Yield the rows of ``value`` for a template whose fields have the ``paths``.

    If a path leads through a list, yield a copy of ``value`` for each item of the list; in the copy
    the item takes the place of the list. If no path leads through a list, yield ``value`` itself.
    Raises BadTemplate if paths lead through separate lists, LookupError if a path leads to no
    field.
    """
    list_paths_or_none = (_first_list_path(value, path) for path in paths)
    # `dict.fromkeys` drops repeated paths and keeps their order.
    list_paths = list(dict.fromkeys(path for path in list_paths_or_none if path is not None))
    if not list_paths:
        yield value
        return
    if len(list_paths) > 1:
        names = " and ".join(".".join(path) for path in list_paths)
        raise BadTemplate(f"{names} are separate lists: use the fields of one list in a template")
    for item in _at(value, list_paths[0]):
        # A path may lead through another list in the item. Its items are then the rows.
        yield from _rows(_replaced(value, list_paths[0], item), paths)


def _first_list_path(value: Any, path: _Path) -> _Path | None:
    """Return the path of the outermost list that contains the field at ``path``.

    None if no list contains the field. Raises LookupError.
    """
    paths_above = (path[:length] for length in range(1, len(path)))
    return next((above for above in paths_above if isinstance(_at(value, above), list)), None)


def _at(value: Any, path: _Path) -> Any:
    """Return the field at ``path``.

    None if a value above the field is None. Raises LookupError if there is no such field.
    """
    for key in path:
        if value is None:
            return None
        if not isinstance(value, Mapping) or key not in value:
            raise LookupError(".".join(path))
        value = value[key]
    return value


def _replaced(value: Mapping[str, Any], path: _Path, item: Any) -> dict[str, Any]:
    """Return a copy of ``value`` that has ``item`` at ``path``."""
    key, *inner_path = path
    content = _replaced(value[key], tuple(inner_path), item) if inner_path else item
    return {**value, key: content}


def _fields(value: Any, prefix: str = "") -> Iterator[str]:
    """Yield the names of the fields of ``value``, as templates have them.

    The name of a nested field begins with the names of the fields above it, separated by dots:
    ``partitions.replicas.lag``. ``prefix`` is the name of ``value`` itself. A name may occur more
    than once.
    """
    match value:
        case Mapping():
            for key, content in value.items():
                yield from _fields(content, f"{prefix}.{key}" if prefix else key)
        case list() if any(isinstance(item, Mapping) for item in value):
            for item in value:
                yield from _fields(item, prefix)
        case _:
            yield prefix


def _text(value: Any) -> str:
    """Return a text as it is, and any other value as JSON."""
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
