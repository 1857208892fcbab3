"""Test that a pool is rebalanced by bytes on request while a witness appends and reads.

The operator spreads the partitions of a pool over its storages by their count, until a user asks
for a spread by their bytes. The witness is described in `e2e.witness`.
"""

from __future__ import annotations

import json

import pytest

from e2e import resources
from e2e.kubectl import Kubectl
from e2e.waiting import until
from e2e.witnessing import Witness

_REBALANCE_SECONDS = 300.0
_BLOB_BYTES = 2_000_000
_BLOBS = 10
"""The number of blobs in a large partition.

An empty partition has about 1 MB. With so many blobs, this is less than the tolerance of the
balance, so that an empty partition counts as small.
"""
_STORAGE = "x-storage-{}.x-storage."
"""The beginning of the address of the pool's storage with this ordinal."""


@pytest.fixture
def served(namespace: Kubectl) -> Kubectl:
    """The namespace of a Healthy cluster of three pools; the pool x has two storages."""
    namespace.apply(
        resources.pool("x", storages=2),
        *(resources.pool(name) for name in "yz"),
        resources.cluster("log", list("xyz"), partitions=4),
    )
    namespace.await_condition("waltzcluster/log", "Healthy", 300)
    return namespace


def assigned(witness: Witness, ordinal: int) -> list[int]:
    """Return the partitions that are assigned to a storage of the pool x."""
    listed = json.loads(witness.waltz("storage", "list", "-o", "json"))
    prefix = _STORAGE.format(ordinal)
    (found,) = (each["assigned"] for each in listed if each["storage"].startswith(prefix))
    return sorted(found)


def fill(witness: Witness, partitions: list[int]) -> None:
    """Append so much to ``partitions`` that the others are small in comparison."""
    # The blob is text, because the witness decodes what it reads.
    program = f"open('/work/blob', 'w').write('x' * {_BLOB_BYTES})"
    witness.kubectl("exec", "witness", "--", "python3", "-c", program)
    for partition in partitions:
        for _ in range(_BLOBS):
            witness.waltz("log", "append", str(partition), "--from", "/work/blob")


def request_rebalance(namespace: Kubectl, value: str | None) -> None:
    annotations = {"waltz.dev/rebalance": value}
    namespace.patch("storagepool", "x", {"metadata": {"annotations": annotations}})


def await_answer(namespace: Kubectl, value: str) -> None:
    """Return when the request is answered, and the cluster is Healthy."""

    def is_answered() -> bool:
        pool = namespace.get("storagepool", "x")
        assert pool is not None
        return bool(pool["status"].get("rebalanced") == value)

    what = f"the request {value} is answered"
    until(is_answered, _REBALANCE_SECONDS, what, show=namespace.describe)
    namespace.await_condition("waltzcluster/log", "Healthy", _REBALANCE_SECONDS)


def test_pool_is_rebalanced_by_bytes_under_load_and_goes_back_to_a_spread_by_count(
    served: Kubectl,
) -> None:
    witness = Witness(served)
    witness.start("log")
    large, small = assigned(witness, 0), assigned(witness, 1)
    assert (len(large), len(small)) == (2, 2)
    fill(witness, large)
    request_rebalance(served, "first")
    await_answer(served, "first")
    kept, grown = assigned(witness, 0), assigned(witness, 1)
    assert len(kept) == 1, f"of the large partitions {large}, one has moved, and nothing else"
    assert {*kept, *grown} == {*large, *small}
    # A value that was answered before is no new request.
    request_rebalance(served, None)
    request_rebalance(served, "first")
    witness.await_progress(60)
    assert assigned(witness, 0) == kept
    # Without the record of the rebalance, the operator spreads the partitions by count.
    annotations = {"waltz.dev/rebalance": None, "waltz.dev/rebalanced": None}
    served.patch("storagepool", "x", {"metadata": {"annotations": annotations}})
    until(
        lambda: len(assigned(witness, 0)) == 2,
        _REBALANCE_SECONDS,
        "the partitions are spread by count",
        show=served.describe,
    )
    served.await_condition("waltzcluster/log", "Healthy", _REBALANCE_SECONDS)
    witness.await_progress(60)
    witness.finish()
