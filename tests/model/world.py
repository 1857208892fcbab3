"""The world of the model: disks, metadata and two servers, and every action that can happen. Pure.

An action is one request that a storage performs, one write to ZooKeeper, one restart, or one
fault. A server may stop after any action: the next session may begin at any time. So a crash needs
no action of its own. The answer of ZooKeeper is an action of its own: a server whose answer is lost
never takes it.

An append counts as acknowledged as soon as a quorum has it. Real servers acknowledge it later or
never, so this asks more of the rule. The torn tail of an interrupted write is an append that did
not happen.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import NamedTuple, TypeVar

from tests.model import rule
from tests.model.bugs import Bug
from tests.model.faults import Fault, after_fault
from tests.model.values import Disk, Do, Entry, Phase, Session, Stage, Step

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Bounds:
    """What limits a search."""

    replicas: int = 3
    spare: int = 0
    """Replicas that are not assigned at the beginning."""
    sessions: int = 3
    records: int = 2
    restarts: int = 1
    moves: int = 0
    """How often a replica is added or removed."""
    older: bool = False
    """Whether the server of the session before goes on, because it does not know of the newer one.

    Otherwise it has stopped. Without restarts both explore the same: a request of the older session
    reaches a replica only before the newer session does, and could as well come before that begins.
    """
    fault: Fault | None = None
    bugs: frozenset[Bug] = frozenset()


class World(NamedTuple):
    """One state. ``fences`` are in the memory of the storages."""

    disks: tuple[Disk, ...]
    fences: tuple[int, ...]
    assigned: tuple[bool, ...]
    entries: tuple[Entry | None, ...] = ()
    session: int = -1
    """The session in the metadata."""
    servers: tuple[Session, ...] = ()
    """The newest session, and the one before if its server still runs."""
    fixed: tuple[int, ...] = ()
    """The log up to the highest mark that a session has resolved or committed."""
    committed: int = -1
    """The last id that was acknowledged."""
    copies: tuple[Disk | None, ...] = ()
    """Copies of disks, from which a volume may be restored."""
    restarts: int = 0
    moves: int = 0
    faulty: bool = False
    """Whether the fault has occurred."""


@dataclass(frozen=True, slots=True)
class Action:
    """What happens, for people to read; ``replica`` is -1 if it is about none."""

    name: str
    session: int = -1
    replica: int = -1
    detail: str = ""


class Broken(Exception):
    """An invariant does not hold."""


def first_world(bounds: Bounds) -> World:
    count = bounds.replicas + bounds.spare
    return World(
        (Disk(),) * count,
        (-1,) * count,
        tuple(number < bounds.replicas for number in range(count)),
        (None,) * count,
        copies=(None,) * count,
    )


Result = tuple[Action, World | Broken]


def successors(world: World, bounds: Bounds) -> Iterator[Result]:
    """Return each action that can happen, with the world after it or the broken invariant."""
    if world.session + 1 < bounds.sessions:
        yield Action("begins", world.session + 1), _begin(world, bounds)
    for at, session in enumerate(world.servers):
        if session.phase is not Phase.CLOSED:
            yield from _server_actions(world, at, session, bounds)
    newest = world.servers[0] if world.servers else None
    decided = newest is not None and newest.mark is not None
    if decided and world.session == bounds.sessions - 1 and not bounds.older:
        return  # the faults that matter to the last session come before its vote
    if world.restarts < bounds.restarts:
        for number, disk in enumerate(world.disks):
            if disk.unreadable or any(_takes_part(s, number) for s in world.servers):
                after = world._replace(restarts=world.restarts + 1)
                yield Action("restarts", -1, number), restarted(after, number, bounds)
    if world.moves < bounds.moves:
        yield from _moves(world)
    if bounds.fault is not None:
        for detail, number, after in after_fault(world, bounds.fault, bounds.bugs):
            if number >= 0:
                after = restarted(after, number, bounds)
            yield Action("FAULT", -1, number, detail), after


def _takes_part(session: Session, number: int) -> bool:
    return session.phase is not Phase.CLOSED and session.views[number].stage is not Stage.ABSENT


def _begin(world: World, bounds: Bounds) -> World:
    """Write the next session to the metadata: a compare-and-set, with the states as they are."""
    session = rule.begin(world.session + 1, world.entries, world.assigned)
    older = world.servers[:1] if bounds.older else ()
    return world._replace(session=session.id, servers=(session, *older))


def _moves(world: World) -> Iterator[Result]:
    for number in range(len(world.disks)):
        flipped = tuple(a != (n == number) for n, a in enumerate(world.assigned))
        if 2 <= sum(flipped) <= 3:
            name = "is assigned" if flipped[number] else "is unassigned"
            after = world._replace(assigned=flipped, moves=world.moves + 1)
            yield Action(name, -1, number), after


def restarted(world: World, number: int, bounds: Bounds) -> World:
    """Return the world after the restart of a storage: its fence falls to that on its disk."""
    disk = world.disks[number]
    if disk.unreadable:
        cut_off = Bug.COUNTS_TORN_DAMAGE in bounds.bugs
        log = disk.log[:-1] if cut_off else disk.log
        disk = disk._replace(log=log, unreadable=False, refused=not cut_off)
    servers = tuple(
        s if s.phase is Phase.CLOSED else rule.lost(s, number, bounds.bugs) for s in world.servers
    )
    return world._replace(
        disks=_put(world.disks, number, disk),
        fences=_put(world.fences, number, disk.session) if bounds.older else world.fences,
        servers=servers,
    )


def _server_actions(world: World, at: int, session: Session, bounds: Bounds) -> Iterator[Result]:
    # Nothing can be lost after the last session that is explored: its recovery shows it all. Once
    # its mark is resolved, the replicas go their own ways, so one order of their steps is enough.
    last = session.id == bounds.sessions - 1 and not bounds.older
    for number in range(len(session.views)):
        found = _replica_action(world, at, number, bounds, appends=not last)
        if found is not None:
            yield found
            if last and session.mark is not None:
                return
    if any(view.unreadable for view in session.views) and not session.contradicted:
        retried = rule.sources_retried(session, bounds.bugs)
        yield Action("retries sources", session.id), _with_server(world, at, retried)
    if last:
        return
    if session.due is not None and not session.sent:
        if world.session == session.id or Bug.SKIPS_CAS in bounds.bugs:
            sent = session._replace(sent=True)
            after = world._replace(entries=session.due, session=max(world.session, session.id))
            yield Action("writes states", session.id), _with_server(after, at, sent)
        else:
            # The compare-and-set fails: another session has begun.
            after = _with_server(world, at, rule.closed(session))
            yield Action("finds a newer session", session.id), after
    elif session.sent:
        opened = _opened(world, at, session, rule.states_written(session, bounds.bugs))
        yield Action("learns that its states are written", session.id), opened


def _replica_action(
    world: World, at: int, number: int, bounds: Bounds, *, appends: bool
) -> Result | None:
    """Return the next request of a session that the storage of a replica performs, else None."""
    session = world.servers[at]
    view, disk = session.views[number], world.disks[number]
    fenced = world.fences[number] > session.id and Bug.NO_FENCE not in bounds.bugs
    if disk.refused or fenced or session.contradicted:
        return None
    if view.stage is Stage.ABSENT and view.assigned:
        found = (disk.session, disk.mark, disk.local)
        joined = rule.introduced(session, number, found, bounds.bugs)
        fences = _raised(world, number, session.id, bounds)
        after = _with_server(world._replace(fences=fences), at, joined)
        return Action("joins", session.id, number), _settle(after, at, number, session, bounds)
    if view.stage is Stage.JOINED and view.step is not None:
        action = Action(view.step.do.name.lower(), session.id, number, str(view.step.at))
        return action, _perform(world, at, session, number, view.step, bounds)
    open_to_appends = view.stage is Stage.ACTIVE and session.phase is Phase.OPEN and appends
    if open_to_appends and len(disk.log) < bounds.records and disk.end == view.acknowledged:
        action = Action("appends", session.id, number, str(disk.end + 1))
        return action, _append(world, at, session, number)
    return None


def _opened(world: World, at: int, before: Session, session: Session) -> World | Broken:
    """Resolve the appends in doubt when a session opens: those up to its mark are acknowledged."""
    after = _with_server(world, at, session)
    opens = before.phase is Phase.RECOVERING and session.phase is Phase.OPEN
    # A server that was replaced may learn late that its states were written: it takes no appends.
    if opens and world.session == session.id:
        assert session.mark is not None
        if session.mark < world.committed:
            return Broken(f"session {session.id} opens below the acknowledged {world.committed}")
        return after._replace(committed=session.mark)
    return after


def _raised(world: World, number: int, session: int, bounds: Bounds) -> tuple[int, ...]:
    """Return the fences after a request of ``session``; they matter only to an older session."""
    if not bounds.older:
        return world.fences
    return _put(world.fences, number, max(world.fences[number], session))


def _perform(
    world: World, at: int, session: Session, number: int, step: Step, bounds: Bounds
) -> World | Broken:
    """Let the storage of a replica perform a step, and report it to the session."""
    disk, bugs = world.disks[number], bounds.bugs
    match step.do:
        case Do.MEASURE:
            after = rule.measured(session, number, disk.end, bugs)
        case Do.CUT:
            disk = disk._replace(log=disk.log[: step.at + 1])
            after = rule.cut(session, number, disk.end, bugs)
        case Do.COPY:
            after = _read(world, session, number, step, bugs)
        case Do.STORE:
            disk = disk._replace(log=disk.log + step.records)
            after = rule.copied(session, number, disk.end, bugs)
        case Do.MARK:
            if _accepts_mark(disk, session.id, step.at):
                disk = disk._replace(session=session.id, mark=step.at, local=disk.end)
                after = rule.marked(session, number, bugs)
            else:
                after = rule.failed(session, number, bugs)
    disks = _put(world.disks, number, disk)
    fences = _raised(world, number, session.id, bounds)
    moved = _with_server(world._replace(disks=disks, fences=fences), at, after)
    return _settle(moved, at, number, session, bounds)


def _settle(world: World, at: int, number: int, before: Session, bounds: Bounds) -> World | Broken:
    """Perform the steps that change no disk, and check what has changed.

    Nothing that happens in between could make a difference: the fence of the replica is raised.
    """
    changing = True
    while changing:
        changing = False
        session = world.servers[at]
        for n, view in enumerate(session.views):
            step, end = view.step, world.disks[n].end
            if step is None or session.contradicted or world.fences[n] > session.id:
                continue
            if step.do is Do.MEASURE:
                session = rule.measured(session, n, end, bounds.bugs)
            elif step.do is Do.CUT and step.at >= end:
                session = rule.cut(session, n, end, bounds.bugs)
            else:
                continue
            world, changing = _with_server(world, at, session), True
            break
    return _checked(world, before, world.servers[at], number)


def _read(world: World, session: Session, number: int, step: Step, bugs: frozenset[Bug]) -> Session:
    """Read the next record from the source of a copy; the replica stores it in another step."""
    source = world.disks[step.source]
    gone = session.views[step.source].stage is Stage.FAILED
    fenced = world.fences[step.source] > session.id
    if source.refused or source.unreadable or gone or fenced or source.end < step.at:
        return rule.not_copied(session, number, bugs)
    store = Step(Do.STORE, step.at, records=(source.log[step.at],))
    view = session.views[number]._replace(step=store)
    return rule.with_view(session, number, view)


def _accepts_mark(disk: Disk, session: int, mark: int) -> bool:
    """Whether a storage accepts a session with this mark (spec/disk.md section 9)."""
    return disk.local <= disk.end <= mark and session >= disk.session and mark >= disk.mark


def _append(world: World, at: int, session: Session, number: int) -> World | Broken:
    """Append the next record of a session to a replica; commit what a quorum has."""
    disk, view = world.disks[number], session.views[number]
    disk = disk._replace(log=(*disk.log, session.id))
    session = rule.with_view(session, number, view._replace(acknowledged=disk.end))
    after = _with_server(world, at, session)._replace(disks=_put(world.disks, number, disk))
    has = sorted((v.acknowledged for v in session.views if v.assigned), reverse=True)
    committed = has[session.quorum - 1]
    if committed <= world.committed or committed > disk.end:
        if committed <= disk.end and _differs(world.fixed, disk.log[: committed + 1]):
            return Broken(f"session {session.id} commits a log that differs from the fixed one")
        return after
    log = disk.log[: committed + 1]
    if _differs(world.fixed, log):
        return Broken(f"session {session.id} commits {committed}, which differs from the fixed log")
    fixed = max(world.fixed, log, key=len)
    return after._replace(fixed=fixed, committed=committed)


def _checked(world: World, old: Session, new: Session, number: int) -> World | Broken:
    """Check the invariants that a step of a recovery may break."""
    if old.mark is None and new.mark is not None:
        return _resolved(world, new)
    if new.phase is not Phase.CLOSED and new.views[number].marked and new.recovered(number):
        log = world.disks[number].log
        if world.session == new.id and _differs(world.fixed, log):
            return Broken(f"replica {number} differs below the mark {new.mark} of session {new.id}")
    return world


def _resolved(world: World, session: Session) -> World | Broken:
    """Check a mark that has just been resolved, and note the log up to it."""
    assert session.mark is not None
    logs = {
        world.disks[number].log[: session.mark + 1]
        for position, number in rule.counted(session)
        if position >= session.mark and world.fences[number] <= session.id
    }
    if world.session != session.id:
        return world  # it was replaced: what it resolves reaches neither a client nor a quorum
    if session.mark < world.committed:
        return Broken(f"session {session.id} resolves {session.mark}: acknowledged is lost")
    if session.mark + 1 < len(world.fixed) and not world.faulty:
        return Broken(f"session {session.id} resolves {session.mark}: a resolved mark goes down")
    if len(logs) > 1:
        return Broken(f"session {session.id} resolves {session.mark}, but the voters differ")
    for log in logs:
        if _differs(world.fixed, log):
            return Broken(f"session {session.id} resolves {session.mark} with another log")
        # A disk that is emptied may take copies away which a session that never opened has counted:
        # then the mark goes down, but not below what was acknowledged (docs/promises.md, "Disk
        # emptied during a recovery").
        world = world._replace(fixed=log)
    return world


def _differs(one: tuple[int, ...], other: tuple[int, ...]) -> bool:
    both = min(len(one), len(other))
    return one[:both] != other[:both]


def _with_server(world: World, at: int, session: Session) -> World:
    servers = (*world.servers[:at], session, *world.servers[at + 1 :])
    return world._replace(servers=servers)


def _put(values: tuple[T, ...], at: int, value: T) -> tuple[T, ...]:
    return (*values[:at], value, *values[at + 1 :])
