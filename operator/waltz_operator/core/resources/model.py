"""The base of all models of resources, and validation rules of the API server. Pure.

A rule is an expression of the Common Expression Language, with the message that a user reads when
it is violated. A rule that names ``oldSelf`` is checked when a resource is changed.
"""

from __future__ import annotations

from typing import Any, ClassVar

from pydantic import BaseModel, ConfigDict
from pydantic.alias_generators import to_camel

RULES = "x-kubernetes-validations"


class Model(BaseModel):
    """A part of a resource: immutable, with field names in Kubernetes' spelling.

    Unknown fields are ignored, because an older operator must read what a newer one wrote.
    """

    model_config = ConfigDict(
        alias_generator=to_camel,
        populate_by_name=True,
        frozen=True,
        extra="ignore",
        use_attribute_docstrings=True,
    )

    RULES: ClassVar[tuple[dict[str, str], ...]] = ()
    """Rules that concern several fields."""

    @classmethod
    def __get_pydantic_json_schema__(cls, core_schema: Any, handler: Any) -> dict[str, Any]:
        """Add the rules to pydantic's schema."""
        schema: dict[str, Any] = handler(core_schema)
        if cls.RULES:
            handler.resolve_ref_schema(schema)[RULES] = list(cls.RULES)
        return schema

    def to_json(self) -> dict[str, Any]:
        """Return the value for the API server, without unset fields."""
        return self.model_dump(mode="json", by_alias=True, exclude_none=True)


def rule(expression: str, message: str) -> dict[str, str]:
    """Return a rule: what must hold, and the message when it does not."""
    return {"rule": expression, "message": message}


def checked(*rules: dict[str, str], **more: Any) -> dict[str, Any]:
    """Return extensions of a field's schema: rules, and others."""
    return {RULES: list(rules), **more}


def shape(pattern: str, message: str) -> dict[str, str]:
    """Return the rule for a text that matches ``pattern``; the field has the same pattern.

    The CRD contains this rule instead of the pattern, because the API server's message about a
    pattern only quotes it.
    """
    return rule(f"self.matches(r'{pattern}')", message)


def immutable(why: str, *others: dict[str, str]) -> dict[str, Any]:
    """Return the rule for a field that never changes, and the field's other rules.

    ``why`` is the message that a user reads.
    """
    return checked(rule("self == oldSelf", why), *others)
