"""Runs the transcripts of clients: one open partition, and one line for each message.

The partition has three replicas and is open. Commands:

    mount x                                 client x connects and mounts at the log's mark
    x append hello [write=7] [read=8,9] [append=5] [mark=3]
                                            a single append; mark: what x has seen, by default all
    x batch [mark=3] [generation=1]: one write=7 | two | three read=7
                                            a batch of appends
    x records from=3 [most=10] [bytes=500] [wait=200] [stored=1]
    x headers from=3 [most=10]              a read of a range, for which no mount is needed; stored:
                                            the records may be in their form on disk
    x flush
    hold / release                          the storages hold requests / handle them
    busy x / drain x                        x takes no bytes / takes them again
    generation 2                            the partition is assigned again, to this server
    forget                                  the server forgets the records that it has in memory
    time                                    the wait of every read has ended
    close                                   this server releases the partition

After each command everything runs that can. The output is the messages that clients get.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from tests.support.partition_world import NAMES, opened, take_messages
from tests.support.replication_world import append
from tests.support.stored_records import wire_form
from waltz.metadata.core.formats import UNRESOLVED
from waltz.protocol import RecordBatch, ReqId
from waltz.protocol import client_server as cs
from waltz.protocol.batches import BatchedOutcome, OutcomeKind
from waltz.protocol.client_numbers import STORED_RANGES_SINCE
from waltz_server.core.appends.append import Append
from waltz_server.core.appends.append_batches import AppendBatch
from waltz_server.core.effects import RangeReadTick
from waltz_server.core.peer import Peer

_VERSION = 5
_MANY = 1 << 20
_RECENT_BYTES = 1 << 20
_SAID = re.compile(r"\w+ (?P<what>\w+)(?P<rest>.*)")


@dataclass
class _Client:
    number: int
    next_seq: int = 0
    names: dict[int, str] = field(default_factory=dict)
    """The name of each request, by its sequence number."""

    def __post_init__(self) -> None:
        self.peer = Peer(_VERSION)

    def req_id(self, generation: int, name: str, count: int = 1) -> ReqId:
        seq = self.next_seq
        self.next_seq += count
        self.names[seq] = name
        return ReqId(self.number, generation, 0, seq)


class ClientStage:
    """Runs one transcript."""

    def __init__(self) -> None:
        self._world = opened()
        self._generation = 1
        self._clients: dict[str, _Client] = {}

    def run(self, command: str) -> list[str]:
        """Run one command; return its output."""
        first, *words = command.split()
        if hasattr(self, f"_do_{first}"):
            getattr(self, f"_do_{first}")(*words)
        else:
            found = _SAID.fullmatch(command)
            assert found, f"a command is a client and its request: {command}"
            getattr(self, f"_client_{found['what']}")(self._client(first), found["rest"].strip())
        self._world.settle()
        return [
            line
            for name, client in self._clients.items()
            for line in self._messages_of(name, client)
        ]

    # ---- commands

    def _do_mount(self, name: str) -> None:
        client = self._client(name)
        request = cs.MountRequest(client.req_id(self._generation, "mount"), self._mark, 0)
        self._world.core.mount(client.peer, request)

    def _do_hold(self) -> None:
        self._world.hold(*NAMES)

    def _do_release(self) -> None:
        self._world.release(*NAMES)

    def _do_busy(self, name: str) -> None:
        self._client(name).peer.congested = True

    def _do_drain(self, name: str) -> None:
        client = self._client(name)
        client.peer.congested = False
        self._world.core.writable(client.peer)

    def _do_generation(self, number: str) -> None:
        self._generation = int(number)
        self._world.core.set_generation(self._generation)

    def _do_forget(self) -> None:
        self._world.core._ranges._recent.__init__(_RECENT_BYTES)

    def _do_time(self) -> None:
        while any(isinstance(wake.timer, RangeReadTick) for wake in self._world.wakes):
            self._world.wake(RangeReadTick)

    def _do_close(self) -> None:
        self._world.core.close()

    def _client_append(self, client: _Client, words: str) -> None:
        new = self._new_append(client, words, self._mark, self._generation)
        self._world.core.append(client.peer, [new])

    def _client_batch(self, client: _Client, words: str) -> None:
        before, _, items = words.partition(":")
        settings = _settings(before.split())
        mark = settings.get("mark", self._mark)
        generation = settings.get("generation", self._generation)
        appends = [self._new_append(client, item, mark, generation) for item in items.split("|")]
        batch = AppendBatch(client.peer, ReqId.decode(appends[0].req_id), appends)
        self._world.core.append_batch(batch)

    def _client_records(self, client: _Client, words: str) -> None:
        wanted = _settings(words.split())
        stored = bool(wanted.get("stored"))
        if stored:
            client.peer.version = STORED_RANGES_SINCE
        request = cs.RecordsRequest(
            client.req_id(self._generation, f"records {words}"),
            wanted["from"],
            wanted.get("most", _MANY),
            wanted.get("bytes", _MANY),
            wanted.get("wait", 0),
            stored,
        )
        self._world.core.read_range(client.peer, request)

    def _client_headers(self, client: _Client, words: str) -> None:
        wanted = _settings(words.split())
        req_id = client.req_id(self._generation, f"headers {words}")
        request = cs.HeadersRequest(req_id, wanted["from"], wanted.get("most", _MANY))
        self._world.core.read_range(client.peer, request)

    def _client_flush(self, client: _Client, _: str) -> None:
        req_id = client.req_id(self._generation, "flush")
        self._world.core.flush(client.peer, cs.FlushRequest(req_id))

    @property
    def _mark(self) -> int:
        mark: int = self._world.core.high_water_mark
        return mark

    def _client(self, name: str) -> _Client:
        return self._clients.setdefault(name, _Client(len(self._clients) + 1))

    def _new_append(self, client: _Client, words: str, mark: int, generation: int) -> Append:
        text, *settings = words.split()
        locks = dict(each.split("=") for each in settings)
        return append(
            text,
            client=client.number,
            generation=generation,
            seq=client.req_id(generation, text).seq,
            mark=int(locks.pop("mark", mark)),
            write=_locks(locks.pop("write", "")),
            read=_locks(locks.pop("read", "")),
            lock_only=_locks(locks.pop("append", "")),
        )

    # ---- output

    def _messages_of(self, name: str, client: _Client) -> list[str]:
        messages = take_messages(self._world, client.peer)
        return [f"{name}  {_described(client, message)}" for message in messages]


def _described(client: _Client, message: Any) -> str:
    request_name = client.names[message.req_id.seq]
    match message:
        case cs.MountResponse(state=state):
            return f"{request_name}: {state.name.lower().replace('_', ' ')}"
        case cs.LockFailure(transaction_id=taken):
            return f"{request_name}: refused, {taken} took the lock"
        case cs.FlushResponse(transaction_id=mark):
            return f"{request_name}: everything up to {mark} is decided"
        case cs.AppendBatchResponse(outcomes=outcomes):
            names = [client.names[message.req_id.seq + i] for i in range(len(outcomes))]
            return "batch: " + ", ".join(map(_outcome, names, outcomes))
        case cs.RecordsResponse(error=None, records=records):
            return (
                f"{request_name}: {_contents(records)}; the log ends at {message.high_water_mark}"
            )
        case cs.StoredRecordsResponse(records=stored):
            found = f"from a disk: {_contents(wire_form(stored))}"
            return f"{request_name}: {found}; the log ends at {message.high_water_mark}"
        case cs.HeadersResponse(error=None, headers=headers):
            ids = [str(h.transaction_id) for h in headers]
            return f"{request_name}: {_list(ids)}; the log ends at {message.high_water_mark}"
        case cs.RecordsResponse() | cs.HeadersResponse():
            assert message.high_water_mark == UNRESOLVED or message.error is not None
            return f"{request_name}: {message.error}"
        case _:
            raise AssertionError(message)


def _outcome(name: str, outcome: BatchedOutcome) -> str:
    match outcome.kind:
        case OutcomeKind.COMMITTED:
            return f"{name} is {outcome.transaction_id}"
        case OutcomeKind.REFUSED:
            return f"{name} refused, {outcome.transaction_id} took the lock"
        case OutcomeKind.ABSENT:
            return f"{name} is not in the log"
        case OutcomeKind.AHEAD:
            return f"{name} is ahead, the log ends at {outcome.transaction_id}"
        case OutcomeKind.UNKNOWN:
            return f"{name} is to be looked up"


def _contents(records: RecordBatch) -> str:
    return _list([f"{r.transaction_id} {r.data.decode()}" for r in records])


def _list(items: Sequence[str]) -> str:
    return ", ".join(items) or "nothing"


def _settings(words: Sequence[str]) -> dict[str, int]:
    return {key: int(value) for key, _, value in (word.partition("=") for word in words)}


def _locks(text: str) -> tuple[int, ...]:
    return tuple(int(each) for each in text.split(",") if each)
