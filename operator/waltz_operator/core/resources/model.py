"""What all models of resources are made of, and rules that the API server itself checks. Pure.

A rule is an expression of the Common Expression Language with the sentence that a user reads when
it does not hold. A rule that names ``oldSelf`` is checked when a resource is changed.
"""

from __future__ import annotations

from typing import Any, ClassVar

from pydantic import BaseModel, ConfigDict
from pydantic.alias_generators import to_camel

RULES = "x-kubernetes-validations"


class Model(BaseModel):
    """A part of a resource: immutable, with field names as Kubernetes writes them.

    Fields that are not known are ignored: an older operator has to read what a newer one wrote.
    """

    model_config = ConfigDict(
        alias_generator=to_camel,
        populate_by_name=True,
        frozen=True,
        extra="ignore",
        use_attribute_docstrings=True,
    )

    RULES: ClassVar[tuple[dict[str, str], ...]] = ()
    """Rules about several fields together."""

    @classmethod
    def __get_pydantic_json_schema__(cls, core_schema: Any, handler: Any) -> dict[str, Any]:
        """Add the rules to the schema that pydantic makes."""
        schema: dict[str, Any] = handler(core_schema)
        if cls.RULES:
            handler.resolve_ref_schema(schema)[RULES] = list(cls.RULES)
        return schema

    def to_json(self) -> dict[str, Any]:
        """Return what is sent to the API server; what is not set is left out."""
        return self.model_dump(mode="json", by_alias=True, exclude_none=True)


def rule(expression: str, message: str) -> dict[str, str]:
    """Return a rule: what has to hold, and what to write instead."""
    return {"rule": expression, "message": message}


def checked(*rules: dict[str, str], **more: Any) -> dict[str, Any]:
    """Return what a field's schema has besides its type: rules, and other extensions."""
    return {RULES: list(rules), **more}


def shape(pattern: str, message: str) -> dict[str, str]:
    """Return the rule for a text of a certain shape, whose field has the same ``pattern``.

    The definition has this rule only: of a pattern, the API server would quote nothing but itself.
    """
    return rule(f"self.matches(r'{pattern}')", message)


def immutable(why: str, *others: dict[str, str]) -> dict[str, Any]:
    """Return the rule for a field that never changes, and other rules that it has.

    ``why`` is the sentence that a user reads.
    """
    return checked(rule("self == oldSelf", why), *others)
