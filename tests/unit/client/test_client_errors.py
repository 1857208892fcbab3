"""Test that the errors of the client library are the same after they are pickled or copied.

Executors of processes pickle the errors of their workers.
"""

from __future__ import annotations

import copy
import pickle
from collections.abc import Callable, Iterator

import pytest

from waltz.client.core import errors
from waltz.client.core.batches import Absent, Appended, Refused
from waltz.client.core.errors import WaltzError
from waltz.protocol.records import ReqId
from waltz.spark.log_reader import LogEndsBefore, ReadTimedOut
from waltz.state.core.errors import MarkMismatch, NotYourTransaction, RowCountUnknown
from waltz.sync.callbacks.core.errors import DataMissing, InCallback, PartitionInactive, TimedOut
from waltz.sync.event_loop import WrongProcess, WrongThread

REQ_ID = ReqId(1, 2, 3, 4)

EXAMPLES = [
    WaltzError("a text"),
    errors.ClusterUnreachable("a text"),
    errors.AnswerLate("a text"),
    errors.ClusterNotFound("a text"),
    errors.ClientFailed("ZooKeeper is lost"),
    errors.ClientClosed(),
    errors.ClientClosed(errors.ITERATED_TWICE),
    errors.PartitionUnknown(9, 4),
    errors.TransactionNotFound(0, 8, 7),
    errors.DataCorrupt(0, 8, 3),
    errors.DataUnreadable(0, 8, b"data", ValueError("no JSON")),
    errors.DataTooLarge(11, 10),
    errors.DataTooLarge(11, 10, batch=True),
    errors.ClientAhead(0, 9, 8),
    errors.LockFailed(0, 5),
    errors.AppendUncertain(0, REQ_ID, "no answer"),
    errors.AppendUncertain(0, REQ_ID, "no answer", (Appended(5), Refused(4), Absent(), None)),
    errors.ServerTooOld(0, 4, "batches"),
    errors.PermissionDenied(0, "client app has no right"),
    ReadTimedOut("a text"),
    LogEndsBefore(0, 8, 7),
    MarkMismatch(0, 8, 7),
    NotYourTransaction("commit"),
    RowCountUnknown(0, 8),
    DataMissing(),
    InCallback("close"),
    PartitionInactive(0),
    TimedOut("a text"),
    WrongProcess(4711),
    WrongThread(),
]


def subclasses(of: type[WaltzError]) -> Iterator[type[WaltzError]]:
    for each in of.__subclasses__():
        yield each
        yield from subclasses(each)


def test_examples_have_every_error_of_the_library() -> None:
    product = {each for each in subclasses(WaltzError) if each.__module__.startswith("waltz.")}
    assert {type(each) for each in EXAMPLES} == product | {WaltzError}


@pytest.mark.parametrize(
    "repeat",
    [lambda error: pickle.loads(pickle.dumps(error)), copy.copy, copy.deepcopy],
    ids=["pickle", "copy", "deepcopy"],
)
@pytest.mark.parametrize("error", EXAMPLES, ids=lambda error: type(error).__name__)
def test_error_after_pickle_or_copy_has_the_same_text_and_fields(
    error: WaltzError, repeat: Callable[[WaltzError], WaltzError]
) -> None:
    found = repeat(error)
    assert type(found) is type(error)
    assert str(found) == str(error)
    assert found.args == error.args
    assert vars(found) == vars(error)


def test_new_instance_has_the_text_cause_and_traceback_of_the_error() -> None:
    error = errors.PartitionUnknown(9, 4)
    with pytest.raises(WaltzError):
        raise error from ValueError("the cause")
    new = errors.new_instance(error)
    assert new is not error
    assert type(new) is errors.PartitionUnknown
    assert str(new) == str(error)
    assert new.__cause__ is error.__cause__
    assert new.__traceback__ is error.__traceback__


def test_new_instance_of_an_error_that_cannot_be_copied_is_the_error() -> None:
    class Uncopyable(Exception):
        def __init__(self, first: str, second: str) -> None:
            super().__init__(f"{first} {second}")

    error = Uncopyable("a", "b")
    assert errors.new_instance(error) is error
