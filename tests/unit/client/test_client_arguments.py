"""Test the errors of arguments that are wrong: each names the argument, and nothing is sent."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import waltz
import waltz.sync
from tests.support.client_cluster import connected
from tests.support.virtual_time import on_virtual_time
from waltz.client import Draft, JsonSerializer, TextSerializer
from waltz.client.core.arguments import shown
from waltz.client.core.serializers import append_of
from waltz.protocol import Lock
from waltz.sync.callbacks import CallbackClient
from waltz.testing import InProcessCluster

LOCK = Lock("seat", 1)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"write_locks": [("seat", 1)]}, r"^write_locks has a tuple: pass waltz.Lock\('seat', 1\)"),
        ({"read_locks": ("seat", 1)}, r"^read_locks has 'seat': it must be a list of waltz.Lock"),
        ({"append_locks": [LOCK, None]}, "^append_locks has None: it must be a list of waltz.Lock"),
        ({"write_locks": LOCK}, "^write_locks is one lock: put it into a list"),
        ({"write_locks": 7}, "^write_locks is 7: it must be a list of waltz.Lock"),
        ({"header": "7"}, "^header is '7': it must be a whole number of 32 bits"),
        ({"header": 1.5}, "^header is 1.5: it must be a whole number"),
        ({"header": True}, "^header is True: it must be a whole number"),
    ],
)
def test_argument_of_a_wrong_type_is_named(arguments: dict[str, Any], message: str) -> None:
    with pytest.raises(TypeError, match=message):
        append_of(Draft(b"", **arguments), None, None)


@pytest.mark.parametrize("header", [1 << 31, -(1 << 31) - 1, 1 << 40])
def test_header_of_more_than_32_bits_is_refused(header: int) -> None:
    with pytest.raises(ValueError, match=rf"^header is {header}: it must be from -2147483648 to "):
        append_of(Draft(b"", header=header), None, None)


@pytest.mark.parametrize("header", [(1 << 31) - 1, -(1 << 31), 0])
def test_header_of_32_bits_is_accepted(header: int) -> None:
    assert append_of(Draft(b"", header=header), None, None).header == header


def test_mark_of_an_empty_log_is_accepted() -> None:
    assert append_of(Draft(b""), None, -1).mark == -1


def test_mark_that_is_not_an_id_is_refused() -> None:
    with pytest.raises(ValueError, match=r"^mark is -2: it must be the id of a transaction, or -1"):
        append_of(Draft(b""), None, -2)
    with pytest.raises(ValueError, match=r"^mark is"):
        append_of(Draft(b""), None, 1 << 63)
    with pytest.raises(TypeError, match=r"^mark is '3': it must be the id"):
        append_of(Draft(b""), None, "3")  # type: ignore[arg-type]


def test_locks_may_come_from_a_generator() -> None:
    locks = (lock for lock in (LOCK, LOCK))
    assert append_of(Draft(b"", write_locks=locks), None, None).num_locks == 2


def test_bytes_of_a_client_with_text_are_named() -> None:
    with pytest.raises(TypeError, match=r"^data is bytes, not str"):
        append_of(Draft(b"text"), TextSerializer(), None)


@pytest.mark.parametrize(
    ("name", "number", "message"),
    [
        (1, "a", r"^the name of Lock\(1, 'a'\) is 1: it must be a str$"),
        (b"seat", 1, r"^the name of Lock\(b'seat', 1\) is b'seat': it must be a str$"),
        ("seat", "1", r"^the id of Lock\('seat', '1'\) is '1': it must be an int; "),
        ("seat", 1.5, r"^the id of Lock\('seat', 1.5\) is 1.5: it must be an int; "),
        ("seat", True, r"^the id of Lock\('seat', True\) is True: it must be an int; "),
    ],
)
def test_lock_of_a_wrong_type_is_refused_when_it_is_made(
    name: Any, number: Any, message: str
) -> None:
    with pytest.raises(TypeError, match=message):
        Lock(name, number)


def test_value_in_an_error_is_one_short_line() -> None:
    assert shown("a\nb") == r"'a\nb'"
    assert len(shown(bytes(1000))) == 80
    assert shown(Multiline()) == "first second"


class Multiline:
    def __repr__(self) -> str:
        return "first\n   second"


Call = Callable[[Any], Any]


def draft(attempt: waltz.Attempt) -> Draft[bytes]:
    return Draft(b"x")


# The arguments are of wrong types on purpose.
WRONG_CALLS: list[tuple[str, Call, type[Exception], str]] = [
    (
        "stream from below -1",
        lambda client: client.stream(0, after=-9),
        ValueError,
        "^after is -9: it must be the id of a transaction, or -1 before the first",
    ),
    (
        "stream from beyond 64 bits",
        lambda client: client.stream(0, after=2**70),
        ValueError,
        r"^after is 1180591620717411303424: .* below 2\*\*63$",
    ),
    (
        "stream from a text",
        lambda client: client.stream(0, after="x"),
        TypeError,
        "^after is 'x': it must be the id of a transaction, a whole number$",
    ),
    (
        "stream of a text",
        lambda client: client.stream("0"),
        TypeError,
        "^partitions is '0': it must be one partition, a whole number, or a dict from each",
    ),
    (
        "stream of a list",
        lambda client: client.stream([0]),
        TypeError,
        r"^partitions is \[0\]: .* such as \{0: -1\}$",
    ),
    (
        "stream of a bool",
        lambda client: client.stream(True),
        TypeError,
        "^partitions is True: it must be one partition",
    ),
    (
        "stream of a partition named by a text",
        lambda client: client.stream({"0": -1}),
        TypeError,
        "^partitions has the key '0': its keys must be partitions, which are whole numbers$",
    ),
    (
        "stream of a partition from None",
        lambda client: client.stream({0: None}),
        TypeError,
        r"^partitions\[0\] is None: it must be the id of a transaction",
    ),
    (
        "stream of a partition from below -1",
        lambda client: client.stream({0: -2}),
        ValueError,
        r"^partitions\[0\] is -2: it must be the id of a transaction, or -1",
    ),
    (
        "stream until a text",
        lambda client: client.stream(0, until="x"),
        TypeError,
        "^until is 'x': it must be the last transaction, a whole number, or a dict from partition",
    ),
    (
        "stream until beyond 64 bits",
        lambda client: client.stream(0, until=2**63),
        ValueError,
        r"^until is 9223372036854775808: it must be the id of a transaction, and below 2\*\*63$",
    ),
    (
        "stream of a partition until a text",
        lambda client: client.stream(0, until={0: "x"}),
        TypeError,
        r"^until\[0\] is 'x': it must be the id of a transaction",
    ),
    (
        "batches from below -1",
        lambda client: client.batches(0, after=-9),
        ValueError,
        "^after is -9: ",
    ),
    (
        "read a text",
        lambda client: client.read(0, "1"),
        TypeError,
        "^transaction_id is '1': it must be the id of a transaction, a whole number$",
    ),
    (
        "read in a bool",
        lambda client: client.read(False, 1),
        TypeError,
        "^partition is False: it must be a whole number; partitions begin at 0$",
    ),
    (
        "mount at a text",
        lambda client: client.mount(0, "1"),
        TypeError,
        "^mark is '1': it must be the id of a transaction, a whole number$",
    ),
    (
        "mount at below -1",
        lambda client: client.mount(0, -9),
        ValueError,
        "^mark is -9: it must be the id of a transaction, or -1 before the first",
    ),
    (
        "outcome of a text",
        lambda client: client.outcome("1:1:0:2"),
        TypeError,
        r"^req_id is '1:1:0:2': it must be a waltz.ReqId; make one by ReqId.parse\('1:1:0:2'\)$",
    ),
    (
        "outcome of None",
        lambda client: client.outcome(None),
        TypeError,
        r"^req_id is None: it must be a waltz.ReqId; that of an AppendUncertain is error.req_id$",
    ),
    (
        "outcome after below -1",
        lambda client: client.outcome(waltz.ReqId(1, 1, 0, 2), after=-9),
        ValueError,
        "^after is -9: ",
    ),
    (
        "submit without a function",
        lambda client: client.submit(0, Draft(b"x")),
        TypeError,
        r"^build is Draft\(.*: it must be a function that takes an Attempt and returns a Draft$",
    ),
    (
        "bulk append of bytes",
        lambda client: client.bulk.append(0, [b"x"]),
        TypeError,
        r"^drafts has b'x': it must be a list of waltz.Draft, such as \[waltz.Draft\(b'data'\)\]$",
    ),
    (
        "bulk append of one draft",
        lambda client: client.bulk.append(0, Draft(b"x")),
        TypeError,
        r"^drafts is Draft\(.*: it must be a list of waltz.Draft",
    ),
    (
        "bulk append at a text",
        lambda client: client.bulk.append(0, [Draft(b"x")], mark="1"),
        TypeError,
        "^mark is '1': ",
    ),
    (
        "records from a text",
        lambda client: client.bulk.records(0, "0"),
        TypeError,
        "^first_id is '0': it must be the id of a transaction, a whole number$",
    ),
    (
        "records from beyond 64 bits",
        lambda client: client.bulk.records(0, 2**63),
        ValueError,
        "^first_id is 9223372036854775808: ",
    ),
    (
        "records of a size beyond 32 bits",
        lambda client: client.bulk.records(0, 0, max_bytes=2**31),
        ValueError,
        "^max_bytes is 2147483648: it must be a whole number from 1 to 2147483647$",
    ),
    (
        "records of a text",
        lambda client: client.bulk.records(0, 0, max_records="5"),
        TypeError,
        "^max_records is '5': it must be a whole number from 1 to 2147483647$",
    ),
    (
        "records after waiting for a text",
        lambda client: client.bulk.records(0, 0, wait_seconds="5"),
        TypeError,
        "^wait_seconds is '5': it must be a number of seconds$",
    ),
    (
        "headers of None",
        lambda client: client.bulk.headers(0, 0, max_headers=None),
        TypeError,
        "^max_headers is None: it must be a whole number from 1",
    ),
]


@pytest.mark.parametrize(
    ("call", "kind", "message"),
    [each[1:] for each in WRONG_CALLS],
    ids=[each[0] for each in WRONG_CALLS],
)
@on_virtual_time
async def test_wrong_argument_of_a_call_is_named_and_nothing_is_sent(
    call: Call, kind: type[Exception], message: str
) -> None:
    async with connected() as (cluster, client):
        with pytest.raises(kind, match=message) as caught:
            await _result(call(client))
        assert "\n" not in str(caught.value)
        assert not cluster.requests


async def _result(called: Any) -> None:
    """Await the result of a call, or iterate over it if it is a stream."""
    if hasattr(called, "__aiter__"):
        async for _ in called:
            pass
    else:
        await called


CALLS_WITH_TIMEOUT: dict[str, tuple[Any, ...]] = {
    "append": (0, b"x"),
    "submit": (0, draft),
    "mount": (0,),
    "read": (0, 0),
    "high_water_mark": (0,),
    "outcome": (waltz.ReqId(1, 1, 0, 2),),
    "flush": (),
    "bulk.append": (0, [Draft(b"x")]),
    "bulk.records": (0, 0),
    "bulk.headers": (0, 0),
}


@pytest.mark.parametrize(
    ("seconds", "kind", "message"),
    [
        ("x", TypeError, "^timeout is 'x': it must be a number of seconds, or None$"),
        (True, TypeError, "^timeout is True: it must be a number of seconds, or None$"),
        (-1, ValueError, "^timeout is -1: it must be a number of seconds, from 0 on$"),
        (float("nan"), ValueError, "^timeout is nan: it must be a number of seconds, from 0 on$"),
    ],
)
@on_virtual_time
async def test_wrong_timeout_of_any_call_is_named_and_nothing_is_sent(
    seconds: Any, kind: type[Exception], message: str
) -> None:
    async with connected() as (cluster, client):
        for name, arguments in CALLS_WITH_TIMEOUT.items():
            method: Any = client
            for part in name.split("."):
                method = getattr(method, part)
            with pytest.raises(kind, match=message):
                await method(*arguments, timeout=seconds)
            assert not cluster.requests, name


@on_virtual_time
async def test_positions_at_the_ends_of_the_log_are_accepted() -> None:
    async with connected(count=2) as (_, client):
        assert [t.id async for t in client.stream({0: -1}, until={0: 1})] == [0, 1]
        assert [t.id async for t in client.stream(0, until=-1)] == []
        assert [t.id async for t in client.stream(0, until={0: -2})] == []
        assert await client.mount(0, -1) == 1
        with pytest.raises(waltz.ClientAhead):
            await _result(client.stream(0, after=2**63 - 1))
        with pytest.raises(waltz.TransactionNotFound):
            await client.read(0, -5)


@pytest.mark.parametrize(
    "read",
    [
        lambda client: client.stream(0, after=2**63 - 1, data=True),
        lambda client: client.batches(0, after=2**63 - 1),
    ],
)
@on_virtual_time
async def test_ranges_after_the_largest_id_raise_client_ahead_and_keep_the_link(
    read: Callable[[waltz.Client[Any]], Any],
) -> None:
    async with connected(count=2, partitions=2) as (_, client):
        with pytest.raises(waltz.ClientAhead) as caught:
            await _result(read(client))
        assert (caught.value.client_mark, caught.value.log_mark) == (2**63 - 1, 1)
        assert await client.high_water_mark(1) == -1


# ---- options

WRONG_OPTIONS: list[tuple[dict[str, Any], type[Exception], str]] = [
    (
        {"unreadable": "foo"},
        ValueError,
        "^unreadable is 'foo': it must be 'raise', 'skip' or 'raw'$",
    ),
    ({"max_in_flight": 0}, ValueError, "^max_in_flight is 0: it must be a whole number from 1 on$"),
    (
        {"max_in_flight": "5"},
        TypeError,
        "^max_in_flight is '5': it must be a whole number from 1 on$",
    ),
    ({"stream_buffer": 0}, ValueError, "^stream_buffer is 0: it must be a whole number from 1 on$"),
    ({"append_timeout": "x"}, TypeError, "^append_timeout is 'x': .* or None for no limit$"),
    ({"answer_timeout": -1}, ValueError, "^answer_timeout is -1: it must be a number of seconds, "),
    (
        {"serializer": JsonSerializer},
        TypeError,
        r"^serializer is the class JsonSerializer: pass an instance, JsonSerializer\(\)$",
    ),
    (
        {"serializer": "json"},
        TypeError,
        "^serializer is 'json': it must be an object with the methods serialize and deserialize$",
    ),
]
"""Options of every ``connect``."""

WRONG_CONNECT_OPTIONS: list[tuple[dict[str, Any], type[Exception], str]] = [
    (
        {"session_timeout_ms": -1},
        ValueError,
        "^session_timeout_ms is -1: it must be a whole number from 1 to 2147483647$",
    ),
    ({"connect_timeout": "x"}, TypeError, "^connect_timeout is 'x': .* or None for no limit$"),
    ({"connect_timeout": -1}, ValueError, "^connect_timeout is -1: it must be a number of seconds"),
    (
        {"tls": True},
        TypeError,
        "^tls is True: it must be waltz.PLAINTEXT, or a waltz.TlsConfig such as "
        r"TlsConfig\(ca=path\)$",
    ),
    ({"access": "away"}, ValueError, "^access is 'away': it must be 'inside' or 'outside'$"),
    ({"tls": False}, TypeError, "^tls is False: it must be waltz.PLAINTEXT, or a waltz.TlsConfig"),
    (
        {"zookeeper_access": "user:password"},
        TypeError,
        "^zookeeper_access is 'user:password': it must be a waltz.ZooKeeperAccess$",
    ),
    (
        {"zookeeper": 5},
        TypeError,
        "^zookeeper is 5: it must be a text such as 'zk-0:2181,zk-1:2181', or the path of a ",
    ),
    ({"root": Path("/waltz")}, TypeError, r"^root is .*Path\('/waltz'\): it must be a text such"),
]


@pytest.mark.parametrize(("options", "kind", "message"), WRONG_OPTIONS + WRONG_CONNECT_OPTIONS)
def test_wrong_option_is_refused_when_connect_is_called(
    options: dict[str, Any], kind: type[Exception], message: str
) -> None:
    given = {"zookeeper": "127.0.0.1:1"} | options
    for connect in (waltz.connect, waltz.sync.connect):
        with pytest.raises(kind, match=message):
            connect(**given)


@pytest.mark.parametrize(("options", "kind", "message"), WRONG_OPTIONS)
def test_wrong_option_of_a_cluster_in_the_process_is_refused(
    options: dict[str, Any], kind: type[Exception], message: str
) -> None:
    with pytest.raises(kind, match=message):
        InProcessCluster().connect(**options)


def test_options_without_a_limit_are_accepted() -> None:
    waltz.connect("127.0.0.1:1", connect_timeout=None, append_timeout=None, answer_timeout=None)


def test_unknown_option_is_refused_with_the_known_ones() -> None:
    options: dict[str, Any] = {"max_inflight": 5}
    message = "^connect has no option max_inflight; its options are access, answer_timeout"
    with pytest.raises(TypeError, match=message):
        waltz.connect("127.0.0.1:1", **options)


@pytest.mark.parametrize(
    ("options", "kind", "message"),
    [
        (
            {"max_in_flight": 0},
            ValueError,
            "^max_in_flight is 0: it must be a whole number from 1 on$",
        ),
        (
            {"apply_threads": 0},
            ValueError,
            "^apply_threads is 0: it must be a whole number from 1 on$",
        ),
        (
            {"retry_threads": "1"},
            TypeError,
            "^retry_threads is '1': it must be a whole number from 1",
        ),
        ({"submit_timeout": -1}, ValueError, "^submit_timeout is -1: it must be a number of sec"),
    ],
)
def test_wrong_option_of_the_client_with_callbacks_is_refused(
    options: dict[str, Any], kind: type[Exception], message: str
) -> None:
    not_used: Any = None
    with pytest.raises(kind, match=message):
        CallbackClient(not_used, not_used, **options)
