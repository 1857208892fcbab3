"""Load the serializer that ``MODULE:NAME`` names. Imports that module, which runs its code."""

from __future__ import annotations

import importlib
from collections.abc import Callable


def find_deserializer(name: str) -> Callable[[bytes], object]:
    """Return the method ``deserialize`` of the serializer that ``name`` names.

    ``name`` is ``MODULE:NAME``. It names a `waltz.Serializer` object, or a class of serializers
    whose constructor needs no arguments. Raises ValueError if there is no such serializer, or if
    the module or the constructor raises ImportError, AttributeError or TypeError. All other errors
    of the module or the constructor are raised unchanged.
    """
    module_name, _, attribute = name.partition(":")
    if not module_name or not attribute:
        raise ValueError(f"{name!r} is not of the form MODULE:NAME, such as orders:SERIALIZER")
    try:
        named_object = getattr(importlib.import_module(module_name), attribute)
        serializer = named_object() if isinstance(named_object, type) else named_object
    except (ImportError, AttributeError, TypeError) as problem:
        raise ValueError(
            f"{name} cannot be loaded: {problem}; if the module is not found, name its folder in "
            "PYTHONPATH"
        ) from problem
    deserialize: Callable[[bytes], object] | None = getattr(serializer, "deserialize", None)
    if not callable(deserialize):
        raise ValueError(f"{name} has no method deserialize: name a serializer")
    return deserialize
