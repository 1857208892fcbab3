"""The serializers of the library."""

from __future__ import annotations

from dataclasses import InitVar, dataclass, field
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from waltz import BytesSerializer, DataclassSerializer, DataTooLarge, JsonSerializer, TextSerializer
from waltz.client.core import serializers
from waltz.client.core.serializers import encode_data

json_values = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats(allow_nan=False, allow_infinity=False)
    # A lone surrogate is no text that could be encode_data.
    | st.text(st.characters(exclude_categories=["Cs"])),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(st.characters(codec="utf-8")), inner),
    max_leaves=10,
)


@dataclass(frozen=True)
class Deposit:
    account: int
    amount: int
    tags: list[str] = field(default_factory=list)


@given(json_values)
def test_json_serializer_round_trip_keeps_values(value: Any) -> None:
    json = JsonSerializer()
    assert json.deserialize(json.serialize(value)) == value


def test_equal_json_values_have_equal_bytes() -> None:
    json = JsonSerializer()
    assert json.serialize({"b": 1, "a": "ü"}) == json.serialize({"a": "ü", "b": 1})
    assert json.serialize({"b": 1, "a": "ü"}) == '{"a":"ü","b":1}'.encode()


@pytest.mark.parametrize("value", [float("nan"), float("inf")])
def test_json_serializer_refuses_values_without_json_form(value: float) -> None:
    with pytest.raises(ValueError, match="JSON"):
        JsonSerializer().serialize(value)


@given(st.text(st.characters(codec="utf-8")), st.binary())
def test_text_and_bytes_serializers_round_trip_keeps_values(text: str, data: bytes) -> None:
    assert TextSerializer().deserialize(TextSerializer().serialize(text)) == text
    assert BytesSerializer().deserialize(BytesSerializer().serialize(data)) == data


def test_dataclass_serializer_round_trip_keeps_values() -> None:
    deposits = DataclassSerializer(Deposit)
    deposit = Deposit(1, 50, ["cash"])
    assert deposits.deserialize(deposits.serialize(deposit)) == deposit


def test_dataclass_field_added_later_has_its_default() -> None:
    assert DataclassSerializer(Deposit).deserialize(b'{"account":1,"amount":2}') == Deposit(1, 2)


@pytest.mark.parametrize(
    ("data", "expected"),
    [
        (b'{"account":1,"amount":2,"currency":"EUR"}', "currency"),
        (b'{"account":1}', "amount"),
        (b"[1, 2]", "a JSON object, not"),
        (b"{", "Expecting"),
    ],
)
def test_dataclass_refuses_other_json_objects(data: bytes, expected: str) -> None:
    with pytest.raises(ValueError, match=expected):
        DataclassSerializer(Deposit).deserialize(data)


def test_dataclass_refuses_other_classes() -> None:
    @dataclass(frozen=True)
    class Bonus(Deposit):
        percent: int = 0

    with pytest.raises(TypeError, match="Bonus is not Deposit"):
        DataclassSerializer(Deposit).serialize(Bonus(1, 2))
    with pytest.raises(TypeError, match="int is not a dataclass"):
        DataclassSerializer(int)


def test_dataclass_that_its_fields_cannot_create_is_refused() -> None:
    @dataclass(frozen=True)
    class Checked:
        account: int
        total: int = field(init=False, default=0)

    @dataclass(frozen=True)
    class Scaled:
        account: int
        factor: InitVar[int]

    with pytest.raises(TypeError, match=r"Checked cannot be created from its fields: .*'total'"):
        DataclassSerializer(Checked)
    with pytest.raises(TypeError, match=r"Scaled cannot be created from its fields: .*'factor'"):
        DataclassSerializer(Scaled)


def test_dataclass_with_default_of_init_only_parameter_is_accepted() -> None:
    @dataclass(frozen=True)
    class Scaled:
        account: int
        factor: InitVar[int] = 1

    scaled = DataclassSerializer(Scaled)
    assert scaled.deserialize(scaled.serialize(Scaled(3))) == Scaled(3)


def test_client_without_serializer_refuses_other_types(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(TypeError, match="data is str, not bytes: encode it"):
        encode_data(None, "text")
    monkeypatch.setattr(serializers, "MAX_DATA_BYTES", 3)
    with pytest.raises(DataTooLarge, match="4 bytes"):
        encode_data(TextSerializer(), "four")
