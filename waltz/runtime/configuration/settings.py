"""The base class of all settings: models of pydantic-settings.

The alias of a model's field is the dotted name of its setting. Touches nothing:
`waltz.runtime.configuration.reading` fills the models.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, ClassVar

from pydantic import BaseModel, BeforeValidator, Field
from pydantic.fields import FieldInfo
from pydantic_settings import BaseSettings, PydanticBaseSettingsSource, SettingsConfigDict

from waltz.runtime.core.value_types import (
    ValueType,
    boolean,
    file,
    names,
    not_negative,
    port,
    positive,
    text,
)

Positive = Annotated[int, BeforeValidator(positive)]
NotNegative = Annotated[int, BeforeValidator(not_negative)]
Port = Annotated[int, BeforeValidator(port)]
Switch = Annotated[bool, BeforeValidator(boolean)]
Text = Annotated[str, BeforeValidator(text)]
File = Annotated[Path, BeforeValidator(file)]
# A setting of these types has the default None. But a key without a value in the file is an error,
# as it is for the types above: the validator applies to the whole union, and rejects None.
OptionalPort = Annotated[int | None, BeforeValidator(port)]
OptionalText = Annotated[str | None, BeforeValidator(text)]
OptionalFile = Annotated[Path | None, BeforeValidator(file)]
OptionalNames = Annotated[tuple[str, ...] | None, BeforeValidator(names)]

_REQUIRED = ...
"""The default by which pydantic recognises a field that must be set."""

# Defaults are not validated: the validators would reject the default None of an optional setting.
# `reading` fills a model by the aliases of its fields; code may also construct it by their names.
_CONFIG = SettingsConfigDict(
    frozen=True, extra="forbid", validate_by_name=True, validate_default=False
)


def setting(name: str, meaning: str, default: Any = _REQUIRED) -> Any:
    """Return the field of the setting ``name``. A setting without a default is required."""
    return Field(default, validation_alias=name, description=meaning)


def group(name: str, default: Group) -> Any:
    """Return the field of the settings whose names begin with ``name`` and a dot."""
    return Field(default, validation_alias=name)


class Group(BaseModel):
    """Settings that several models contain below different names, such as ``server.tls``."""

    model_config = _CONFIG


class Settings(BaseSettings):
    """All settings of one kind of process.

    ``process`` is the name of this kind for ``waltz config explain``; "": the command does not know
    this kind. ``without_effect`` maps each setting of Waltz 0.13.2 that this system accepts and
    ignores to the reason. A key that ends with a dot stands for all settings whose names begin with
    the key.
    """

    model_config = _CONFIG
    process: ClassVar[str] = ""
    without_effect: ClassVar[Mapping[str, str]] = {}

    def problems(self, ignored: Mapping[str, Any]) -> Iterator[str]:
        """Yield a sentence for each combination of values that cannot be used.

        A subclass overrides this method if it has such combinations. ``ignored`` has the settings
        of `without_effect` that are set, with their values.
        """
        yield from ()

    @classmethod
    def settings_customise_sources(
        cls,
        settings_cls: type[BaseSettings],
        init_settings: PydanticBaseSettingsSource,
        *others: PydanticBaseSettingsSource,
        **more: PydanticBaseSettingsSource,
    ) -> tuple[PydanticBaseSettingsSource, ...]:
        """Return the sources of a model that code constructs: its arguments, not the environment.

        When `reading` constructs a model, it passes other sources, which replace these.
        """
        return (init_settings,)


@dataclass(frozen=True, slots=True)
class SettingKey:
    """One setting: its dotted name, the type of its values, its default, its meaning."""

    name: str
    value_type: ValueType
    default: Any
    required: bool
    meaning: str

    @property
    def kind(self) -> str:
        """The name of the value type in the documentation."""
        return self.value_type.name


def keys(model: type[BaseModel], prefix: str = "") -> tuple[SettingKey, ...]:
    """Return the settings of ``model``: first its own, then those of its groups."""
    own: list[SettingKey] = []
    grouped: list[SettingKey] = []
    for field in model.model_fields.values():
        name = f"{prefix}{field.validation_alias}"
        members = group_of(field)
        if members is None:
            own.append(_key(name, field))
        else:
            grouped += keys(members, f"{name}.")
    return (*own, *grouped)


def group_of(field: FieldInfo) -> type[Group] | None:
    """Return the model of a field made by `group`, None for a single setting."""
    model = field.annotation
    return model if isinstance(model, type) and issubclass(model, Group) else None


def _key(name: str, field: FieldInfo) -> SettingKey:
    # The annotated types above, such as `Port`, have exactly one validator.
    [validator] = (item for item in field.metadata if isinstance(item, BeforeValidator))
    assert isinstance(validator.func, ValueType), f"{name} has no type of value_types"
    required = field.is_required()
    default = None if required else field.default
    return SettingKey(name, validator.func, default, required, field.description or "")
