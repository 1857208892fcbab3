"""Runs the transcripts of recovery: a partition's store, its replicas, and one line per event.

A transcript is a text file of commands and what they show, made to be read. Commands:

    metadata session=9 a:9:open b:9:open c:7@34   the metadata; open: the session's end is
                                                  not known; 7@34: left session 7 closed at 34
    storage a session=9 low=26 local=26 last=38 [foreign=30]
                                                  what a storage holds; foreign: records after this
                                                  id differ from the log of the others
    assign a b c                                  these replicas belong to the partition now
    connect a b                                   connections are opened, one after the other
    lose a                                        a connection breaks
    restart a                                     a storage process ends and starts again
    empty a                                       a storage loses its disk
    copy a / restore a                            a copy of a disk is made / is restored
    hold a / answer a / release a                 a storage lets requests wait / does one / does all
    former 9 append 39 to a                       the former server, in session 9, still writes
    append x y                                    this server appends, each word one transaction
    time                                          this server's pauses are over
    show                                          the state of everything

After each command everything is performed that is possible. What is shown then:

    a  max id: 38                                 a request to a storage, and its answer
    metadata: session 10, a open, c@34            what this server wrote to ZooKeeper
    session 10 open at 38 with a b                the state of the session, whenever it changes
    session 10 waits: absent: b
"""

from __future__ import annotations

import re
from typing import Any

from tests.support.memory_storages import PARTITION, MemoryStorage, record
from tests.support.replication_world import World, append
from waltz.metadata.core.formats import UNRESOLVED, PartitionMetadata, ReplicaState
from waltz.net.core.backoff import Backoff
from waltz.protocol import RecordBatch
from waltz.protocol import storage as st
from waltz_server.core.effects import ResetFailures
from waltz_server.core.limits import ReplicationLimits
from waltz_server.core.replication.session_state import SessionPhase
from waltz_server.core.store_reports import AppendsCommitted, AppendsFailed

_STATE = re.compile(r"(?P<name>\w+):(?P<session>-?\d+)(:open|@(?P<mark>-?\d+))")


class Stage:
    """Plays one transcript."""

    def __init__(self) -> None:
        self._world = World.of_store(ReplicationLimits(copy_records=20), Backoff(0.1, 20.0))
        self._world.on_call = self._called
        self._world.on_write = lambda value: self._say(f"metadata: {_metadata(value)}")
        self._lines: list[str] = []
        self._status = "no session"

    def run(self, command: str) -> list[str]:
        """Do one command; return what is to be seen."""
        name, *words = command.split()
        if name == "show":
            return self._show()
        getattr(self, f"_{name}")(*words)
        self._world.settle()
        self._show_outcomes()
        self._show_status()
        shown, self._lines = self._lines, []
        return shown

    # ---- commands

    def _metadata(self, session: str, *states: str) -> None:
        entries = {}
        for state in states:
            found = _STATE.fullmatch(state)
            assert found, f"a replica's state is name:session:open or name:session@mark: {state}"
            mark = UNRESOLVED if found["mark"] is None else int(found["mark"])
            entries[found["name"]] = ReplicaState(int(found["session"]), mark)
        self._world.metadata = PartitionMetadata(0, _number(session), entries)

    def _storage(self, name: str, *settings: str) -> None:
        values = {key: int(value) for key, _, value in (s.partition("=") for s in settings)}
        self._world.storages[name] = MemoryStorage(name, **values)

    def _assign(self, *names: str) -> None:
        for name in names:
            self._world.storages.setdefault(name, MemoryStorage(name))
        self._world.core.set_generation(1)
        self._world.core.set_replicas(names)

    def _connect(self, *names: str) -> None:
        self._world.connect(*names)

    def _lose(self, name: str) -> None:
        self._world.cut(name)

    def _restart(self, name: str) -> None:
        self._world.storages[name].restart()
        self._world.cut(name)

    def _empty(self, name: str) -> None:
        self._world.storages[name].empty()
        self._world.cut(name)

    def _copy(self, name: str) -> None:
        self._world.storages[name].copy_disk()

    def _restore(self, name: str) -> None:
        self._world.storages[name].restore()
        self._world.cut(name)

    def _hold(self, *names: str) -> None:
        self._world.hold(*names)

    def _answer(self, name: str) -> None:
        self._world.let_one(name)

    def _release(self, *names: str) -> None:
        self._world.release(*names)

    def _former(self, session: str, _append: str, transaction: str, _to: str, name: str) -> None:
        records = RecordBatch.of([record(int(transaction))])
        request = st.AppendRequest(int(session), 0, PARTITION, records)
        self._called(f"{name} (former server)", request, self._world.storages[name].handle(request))

    def _append(self, *words: str) -> None:
        self._world.core.append([append(word) for word in words])

    def _time(self) -> None:
        waiting = [w for w in self._world.wakes if not isinstance(w.timer, ResetFailures)]
        for wake in sorted(waiting, key=lambda w: w.seconds):
            self._world.wake(type(wake.timer))

    # ---- what is to be seen

    def _say(self, line: str) -> None:
        self._lines.append(line)

    def _called(self, storage: str, request: Any, answer: Any) -> None:
        if isinstance(answer, st.FailureResponse):
            _, _, reason = str(answer.failure.message).rpartition("Exception: ")
            outcome = f"refused, {reason}"
        else:
            outcome = _outcome(answer)
        self._say(f"{storage}  {_what(request)}{outcome and ': '}{outcome}")

    def _show_outcomes(self) -> None:
        for event in self._world.take_events():
            match event:
                case AppendsCommitted(first_id, appends):
                    for number, each in enumerate(appends, first_id):
                        self._say(f"committed {number}: {each.record_tail[8:-4].decode()}")
                case AppendsFailed(appends):
                    for each in appends:
                        self._say(f"failed: {each.record_tail[8:-4].decode()}")

    def _show_status(self) -> None:
        status = self._describe_status()
        if status != self._status:
            self._status = status
            self._say(status)

    def _describe_status(self) -> str:
        core = self._world.core
        session = core.session
        if session is None:
            if core.waiting_for is not None:
                return f"no session: {core.waiting_for}"
            return "no session, a pause" if self._world.wakes else "no session"
        if session.phase is SessionPhase.RECOVERING:
            return f"session {session.session_id} waits: {session.recovery.waiting_for()}"
        active = " ".join(sorted(session.active()))
        return f"session {session.session_id} open at {session.low_water_mark} with {active}"

    def _show(self) -> list[str]:
        world = self._world
        lines = [self._describe_status(), f"metadata: {_metadata(world.metadata)}"]
        for name, storage in sorted(world.storages.items()):
            session, low, local = storage.marks
            marks = f"session {session}, low {low}, local {local}"
            lines.append(f"{name}  {marks}, {_contents(storage)}")
        return lines


def _number(setting: str) -> int:
    return int(setting.partition("=")[2])


def _metadata(value: PartitionMetadata) -> str:
    states = (
        f"{name} open in {state.session_id}"
        if state.closing_mark == UNRESOLVED
        else f"{name} {state.session_id}@{state.closing_mark}"
        for name, state in value.replicas.items()
    )
    return ", ".join((f"session {value.session_id}", *states))


def _contents(storage: MemoryStorage) -> str:
    if storage.last < 0:
        return "empty"
    foreign = storage.foreign
    tail = f", foreign {_range(foreign[0], foreign[-1])}" if foreign else ""
    return _range(0, storage.last) + tail


def _range(first: int, last: int) -> str:
    return f"{first}" if first == last else f"{first}-{last}"


def _what(request: Any) -> str:
    match request:
        case st.LastSessionInfoRequest():
            return "session info"
        case st.MaxTransactionIdRequest():
            return "max id"
        case st.TruncateRequest(transaction_id=keep):
            return f"truncate to {keep}"
        case st.TruncateBelowMarkRequest(transaction_id=keep, low_water_mark=mark):
            return f"truncate to {keep}, below the unconfirmed mark {mark}"
        case st.SetLowWaterMarkRequest(low_water_mark=mark):
            return f"low-water mark {mark}"
        case st.AppendRequest(records=records):
            first = records.first_id()
            return f"append {_range(first, first + records.count - 1)}"
        case st.BoundedRecordListRequest(first_id=first, max_records=count):
            return f"read {_range(first, first + count - 1)}"
        case _:
            raise AssertionError(request)


def _outcome(answer: Any) -> str:
    match answer:
        case st.LastSessionInfoResponse():
            marks = f"low {answer.low_water_mark}, local {answer.local_low_water_mark}"
            return f"session {answer.last_session_id}, {marks}"
        case st.MaxTransactionIdResponse(transaction_id=max_id):
            return f"ends at {max_id}"
        case _:
            return ""
