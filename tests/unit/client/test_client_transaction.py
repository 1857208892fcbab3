"""A transaction is an immutable value, however it was made."""

from __future__ import annotations

import copy
import pickle
from dataclasses import FrozenInstanceError

import pytest

from waltz.client import Transaction
from waltz.client.core.values import transactions_of
from waltz.protocol import ReqId

REQ_ID = ReqId(17, 3, 2, 42)
MADE = Transaction(2, 9, REQ_ID, 5, b"data")
(READ,) = transactions_of(2, [(9, REQ_ID.encode(), 5, 4, b"data")])


@pytest.fixture(params=[MADE, READ], ids=["made", "read"])
def transaction(request: pytest.FixtureRequest) -> Transaction[bytes]:
    found: Transaction[bytes] = copy.copy(request.param)
    return found


def test_transaction_matches_by_position_and_shows_its_fields(
    transaction: Transaction[bytes],
) -> None:
    match transaction:
        case Transaction(partition, number, req_id, header, data):
            assert (partition, number, req_id, header, data) == (2, 9, REQ_ID, 5, b"data")
    assert transaction.req_id is transaction.req_id
    assert repr(transaction) == (
        "Transaction(partition=2, id=9, "
        "req_id=ReqId(client_id=17, generation=3, partition=2, seq=42), header=5, data=b'data')"
    )


def test_transaction_equals_one_with_the_same_fields(transaction: Transaction[bytes]) -> None:
    assert transaction == Transaction(partition=2, id=9, req_id=REQ_ID, header=5, data=b"data")
    assert hash(transaction) == hash(MADE)
    for other in (
        Transaction(1, 9, REQ_ID, 5, b"data"),
        Transaction(2, 8, REQ_ID, 5, b"data"),
        Transaction(2, 9, ReqId(17, 3, 2, 43), 5, b"data"),
        Transaction(2, 9, REQ_ID, 6, b"data"),
        Transaction(2, 9, REQ_ID, 5, b"other"),
        (2, 9, REQ_ID, 5, b"data"),
    ):
        assert transaction != other


def test_transaction_is_not_changed(transaction: Transaction[bytes]) -> None:
    for name in ("partition", "id", "req_id", "header", "data", "other"):
        with pytest.raises(FrozenInstanceError, match=name):
            setattr(transaction, name, 1)
        with pytest.raises(FrozenInstanceError, match=name):
            delattr(transaction, name)
    assert transaction == MADE


def test_transaction_is_copied_and_pickled(transaction: Transaction[bytes]) -> None:
    for protocol in range(2, pickle.HIGHEST_PROTOCOL + 1):
        assert pickle.loads(pickle.dumps(transaction, protocol)) == MADE
    assert copy.deepcopy(transaction) == MADE
