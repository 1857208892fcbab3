"""Replace functions of imported modules by those of a changed text. Changes this process.

A process that has imported the product and the tests can then hunt a bug at once. That is possible
only if the two texts differ inside of functions: what a module computes when it is imported stays.
"""

from __future__ import annotations

import gc
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path
from types import CodeType, FunctionType

_INNER = ".<locals>."
_OPTIMIZED = 0x1
"""The flag of the code of a function; that of a module or of a class does not have it."""

_Place = tuple[str, str, int]
"""The file, the qualified name and the first line of a function."""


class LoadedFunctions:
    """The functions of this process whose code is from files below ``folder``."""

    def __init__(self, folder: Path) -> None:
        self._functions: defaultdict[_Place, list[FunctionType]] = defaultdict(list)
        self._outer: set[tuple[str, str]] = set()
        """Functions that have made other functions, by file and qualified name."""
        for found in gc.get_objects():
            if isinstance(found, FunctionType):
                code = found.__code__
                if code.co_filename.startswith(f"{folder}/"):
                    self._functions[_place(code)].append(found)
                    outer, inner, _ = code.co_qualname.partition(_INNER)
                    if inner:
                        self._outer.add((code.co_filename, outer))

    def replace(self, path: Path, text: str) -> bool:
        """Replace the functions of ``path`` by those of ``text``; return whether that is possible.

        If it is not possible, nothing is replaced.
        """
        before = compile(path.read_text(), str(path), "exec", dont_inherit=True)
        after = compile(text, str(path), "exec", dont_inherit=True)
        try:
            pairs = list(_changed_functions(before, after))
        except _ChangedOutsideFunctions:
            return False
        for old, new in pairs:
            functions = self._functions.get(_place(old))
            made_others = (old.co_filename, old.co_qualname) in self._outer
            if not functions or made_others or old.co_freevars != new.co_freevars:
                return False
        for old, new in pairs:
            for function in self._functions[_place(old)]:
                function.__code__ = new
        return True


class _ChangedOutsideFunctions(Exception):
    """The texts differ in statements of a module or of a class."""


def _place(code: CodeType) -> _Place:
    return code.co_filename, code.co_qualname, code.co_firstlineno


def _changed_functions(old: CodeType, new: CodeType) -> Iterator[tuple[CodeType, CodeType]]:
    """Yield the functions that differ, in the codes of a module or of the body of a class."""
    if _without_inner(old) != _without_inner(new):
        raise _ChangedOutsideFunctions
    for before, after in zip(_inner(old), _inner(new), strict=True):
        if not before.co_flags & _OPTIMIZED:
            yield from _changed_functions(before, after)
        elif not _equal(before, after):
            yield before, after


def _equal(old: CodeType, new: CodeType) -> bool:
    """Return whether two codes do the same; their line numbers do not count."""
    return _without_inner(old) == _without_inner(new) and all(
        _equal(before, after) for before, after in zip(_inner(old), _inner(new), strict=True)
    )


def _inner(code: CodeType) -> list[CodeType]:
    return [each for each in code.co_consts if isinstance(each, CodeType)]


def _without_inner(code: CodeType) -> tuple[object, ...]:
    """Return what a code does, without the codes inside of it."""
    constants = [
        (CodeType, each.co_qualname)
        if isinstance(each, CodeType)
        # 1, 1.0 and True are equal.
        else (type(each), repr(each))
        for each in code.co_consts
    ]
    return (
        code.co_code,
        constants,
        code.co_names,
        code.co_varnames,
        code.co_freevars,
        code.co_cellvars,
        code.co_argcount,
        code.co_posonlyargcount,
        code.co_kwonlyargcount,
        code.co_flags,
        code.co_exceptiontable,
    )
