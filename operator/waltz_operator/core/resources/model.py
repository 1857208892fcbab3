"""The base class of all models of resources, and validation rules of the API server. Pure.

A rule is an expression of the Common Expression Language, with the message that a user reads if the
expression is false. A rule that names ``oldSelf`` is checked only when a resource is changed.
"""

from __future__ import annotations

from typing import Any, ClassVar

from pydantic import BaseModel, ConfigDict
from pydantic.alias_generators import to_camel

RULES_EXTENSION = "x-kubernetes-validations"
"""The extension of a JSON schema that holds the rules."""


class Model(BaseModel):
    """A part of a resource: immutable, with field names in Kubernetes' spelling.

    Unknown fields are ignored, because an older operator must read resources of a newer operator.
    """

    model_config = ConfigDict(
        alias_generator=to_camel,
        populate_by_name=True,
        frozen=True,
        extra="ignore",
        use_attribute_docstrings=True,
    )

    RULES: ClassVar[tuple[dict[str, str], ...]] = ()
    """The rules of the whole model, which may concern several fields."""

    @classmethod
    def __get_pydantic_json_schema__(cls, core_schema: Any, handler: Any) -> dict[str, Any]:
        """Add the rules to pydantic's schema."""
        schema: dict[str, Any] = handler(core_schema)
        if cls.RULES:
            handler.resolve_ref_schema(schema)[RULES_EXTENSION] = list(cls.RULES)
        return schema

    def to_json(self) -> dict[str, Any]:
        """Return the value for the API server, without the fields that are None."""
        return self.model_dump(mode="json", by_alias=True, exclude_none=True)


def rule(expression: str, message: str) -> dict[str, str]:
    """Return the rule that ``expression`` is true; a user reads ``message`` if it is false."""
    return {"rule": expression, "message": message}


def checked(*rules: dict[str, str], **more: Any) -> dict[str, Any]:
    """Return extensions of a field's JSON schema: ``rules``, and other extensions in ``more``."""
    return {RULES_EXTENSION: list(rules), **more}


def pattern_rule(pattern: str, message: str) -> dict[str, str]:
    """Return the rule that a text matches ``pattern``.

    Give the field the same ``pattern`` as well, by which pydantic checks the text. `shell.crds`
    leaves the pattern out of the CRD if the field has this rule. Otherwise the API server would
    also report a wrong text by its own message, which only quotes the pattern.
    """
    return rule(f"self.matches(r'{pattern}')", message)


def immutable(why: str, *others: dict[str, str]) -> dict[str, Any]:
    """Return the extension of the JSON schema of a field that never changes.

    ``why`` is the message that a user reads after an attempt to change the field. ``others`` are
    other rules of the field.
    """
    return checked(rule("self == oldSelf", why), *others)
