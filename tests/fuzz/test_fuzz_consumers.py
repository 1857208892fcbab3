"""Consumers of metadata, resources, ledgers and files: a value or a named error, nothing else."""

from __future__ import annotations

from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.fuzz.consumers import consumer_targets
from tests.fuzz.spark_data import spark_targets
from tests.fuzz.target import Target

TARGETS = (*consumer_targets(), *spark_targets())


@pytest.mark.parametrize("target", TARGETS, ids=lambda target: target.name)
@settings(max_examples=60, derandomize=True)
@given(seed=st.integers(0, 2**32), changes=st.integers(0, 6))
def test_consumer_returns_a_value_or_raises_a_named_error(
    target: Target, seed: int, changes: int
) -> None:
    random = Random(seed)
    data, other = target.make(random), target.make(random)
    for _ in range(changes):
        data = target.change(random, data, other)
    target.check(data)


@pytest.mark.parametrize("target", TARGETS, ids=lambda target: target.name)
def test_consumer_accepts_valid_data(target: Target) -> None:
    assert all(target.check(target.make(Random(seed))) for seed in range(10))
