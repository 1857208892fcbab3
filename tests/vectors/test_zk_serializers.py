"""The data of znodes: each format decodes to its fields and encodes to the same bytes."""

from __future__ import annotations

import json
from pathlib import Path

from tests.vectors.znodes import decoded_as, value_of


def test_znode_data_decode_to_their_fields_and_encode_to_the_same_bytes(vectors: Path) -> None:
    cases = json.loads((vectors / "zk-serializers.json").read_text())
    assert cases
    for case in cases:
        kind, fields, raw = case["kind"], case["fields"], bytes.fromhex(case["hex"])
        value, encoded = value_of(kind, fields)
        assert decoded_as(kind, fields, raw) == value, case
        assert encoded == raw, case
