"""The rule of a recovery, as a state machine of one session: votes, marks, states. Pure.

This is written from spec/behaviour.md section 6 and spec/zookeeper.md section 6, apart from the
code of the server. The functions take reports of replicas and return the session that follows.
`session_after` computes the vote, the next steps and the states to write, as the server does after
each report.
"""

from __future__ import annotations

from collections.abc import Sequence

from tests.model.bugs import Bug
from tests.model.values import NEVER, Do, Entry, Phase, Role, Session, Stage, Step, View

Bugs = frozenset[Bug]
NO_BUGS: Bugs = frozenset()


def begin(
    session: int,
    states: Sequence[Entry | None],
    assigned: Sequence[bool],
    committed: int = -1,
) -> Session:
    """Return session ``session``, which has written its id to the metadata with ``states``.

    Its server knows that everything up to ``committed`` is committed.
    """
    views = tuple(
        View(entry, entry is not None, member)
        for entry, member in zip(states, assigned, strict=True)
    )
    last = sum(view.in_last for view in views)
    return Session(
        session,
        views,
        sum(assigned) // 2 + 1,
        last // 2 + 1,
        mark=None if last else -1,
        known=committed,
    )


# ---- reports of replicas


def introduced(
    session: Session, number: int, found: tuple[int, int, int], bugs: Bugs = NO_BUGS
) -> Session:
    """Classify a replica, whose disk has ``found``: session, mark and local mark."""
    disk_session, mark, local = found
    view = session.views[number]
    assert view.assigned
    assert view.stage is Stage.ABSENT
    new_partition = not any(other.in_last for other in session.views)
    contradicted = disk_session >= session.id or (new_partition and mark >= 0)
    if Bug.CUTS_COMMITTED in bugs:
        contradicted = disk_session >= session.id
    role, cut_at, interim, mark_counts = _classify(session, number, disk_session, mark, bugs)
    step = Step(Do.MEASURE) if cut_at is None else Step(Do.CUT, cut_at)
    view = view._replace(
        stage=Stage.JOINED, role=role, mark=mark, floor=local, interim=interim, step=step
    )
    session = session._replace(
        known=max(session.known, mark) if mark_counts else session.known,
        contradicted=session.contradicted or contradicted,
    )
    return with_view(session, number, view)


def _classify(
    session: Session, number: int, disk_session: int, mark: int, bugs: Bugs
) -> tuple[Role, int | None, int | None, bool]:
    """Return role, cut, interim mark and whether the mark counts (spec/behaviour.md section 6)."""
    states = [view.entry for view in session.views if view.entry is not None]
    entry = session.views[number].entry
    role, cut_at = Role.CLEAN, None
    older = False
    if entry is None and not states:
        role = Role.VOTER
    elif entry is None:
        role, cut_at = Role.NEW, mark
        if Bug.NEW_VOTES in bugs:
            role, cut_at = Role.VOTER, None
    elif disk_session < entry.session and Bug.COUNTS_EMPTIED not in bugs:
        role, older = Role.UNKNOWN, True
        cut_at = mark if entry.closing is None else min(mark, entry.closing)
    elif entry.closing is None:
        role = Role.VOTER
    elif disk_session > max(state.session for state in states):
        pass  # copies of a session that never opened: they are kept, and they count
    elif entry.session == NEVER:
        cut_at = min(mark, entry.closing)
    elif Bug.KEEPS_TAIL not in bugs:
        cut_at = entry.closing
    confirmed = entry is not None and entry.session == disk_session != NEVER
    mark_counts = role is Role.VOTER or older or confirmed
    interim = max(cut_at, mark) if role is Role.CLEAN and cut_at is not None else None
    if Bug.NO_INTERIM_MARK in bugs:
        interim = None
    return role, cut_at, interim, mark_counts


def measured(session: Session, number: int, end: int, bugs: Bugs = NO_BUGS) -> Session:
    """Count a replica, whose log ends at ``end``."""
    view = session.views[number]._replace(step=None, position=end)
    new_partition = not any(other.in_last for other in session.views)
    if new_partition and end >= 0 and Bug.CUTS_COMMITTED not in bugs:
        session = session._replace(contradicted=True)
    if end < view.floor and Bug.COUNTS_LOST_LOG not in bugs:
        view = view._replace(stage=Stage.LOST_RECORDS, position=None)
    elif end < view.mark:
        view = view._replace(role=Role.CLEAN)
    return session_after(with_view(session, number, view), bugs)


def cut(session: Session, number: int, end: int, bugs: Bugs = NO_BUGS) -> Session:
    """Count a replica, whose log was cut and now ends at ``end``."""
    view = session.views[number]._replace(step=None, position=end)
    return session_after(with_view(session, number, view), bugs)


def copied(session: Session, number: int, end: int, bugs: Bugs = NO_BUGS) -> Session:
    """Count a replica, which has received copies up to ``end``."""
    return cut(session, number, end, bugs)


def not_copied(session: Session, number: int, bugs: Bugs = NO_BUGS) -> Session:
    """Choose another source: that of the replica's copy cannot be read."""
    step = session.views[number].step
    assert step is not None
    session = not_read(session, step.source, step.at)
    view = session.views[number]._replace(step=None)
    return session_after(with_view(session, number, view), bugs)


def not_read(session: Session, number: int, at: int) -> Session:
    """Note that a replica could not be read for an active replica that lags."""
    view = session.views[number]
    unreadable = tuple(sorted({*view.unreadable, at}))
    return with_view(session, number, view._replace(unreadable=unreadable))


def sources_retried(session: Session, bugs: Bugs = NO_BUGS) -> Session:
    """Let replicas copy again from the sources that could not be read."""
    views = tuple(view._replace(unreadable=()) for view in session.views)
    return session_after(session._replace(views=views), bugs)


def marked(session: Session, number: int, bugs: Bugs = NO_BUGS) -> Session:
    """Note that the new session is on the disk of a replica."""
    view = session.views[number]
    view = view._replace(step=None, persisted=view.persisted or view.in_last)
    if view.interim is None:
        view = view._replace(marked=True)
    else:
        view = view._replace(mark=view.interim, interim=None)
    return session_after(with_view(session, number, view), bugs)


def lost(session: Session, number: int, bugs: Bugs = NO_BUGS) -> Session:
    """Drop a replica whose connection is lost: its storage may have restarted, without a fence."""
    if session.phase is Phase.RECOVERING and _relies_on(session, session.views[number]):
        return closed(session)
    return failed(session, number, bugs)


def failed(session: Session, number: int, bugs: Bugs = NO_BUGS) -> Session:
    """Drop a replica that has refused a request."""
    if session.phase is Phase.CLOSED:
        return session
    view = session.views[number]
    if view.stage in (Stage.ABSENT, Stage.FAILED):
        return session
    if session.phase is Phase.OPEN and view.stage is Stage.ACTIVE:
        # It may have been part of a quorum: it stays in the metadata, and the next vote counts it.
        gone = view._replace(stage=Stage.FAILED)
    else:
        gone = View(
            view.entry,
            view.in_last,
            view.assigned,
            Stage.FAILED,
            counted=view.counted,
            persisted=view.persisted,
        )
    session = with_view(session, number, gone)
    if session.phase is Phase.OPEN:
        remaining = sum(other.stage is Stage.ACTIVE for other in session.views)
    else:
        remaining = sum(o.assigned and o.stage is not Stage.FAILED for o in session.views)
    if remaining < session.quorum:
        return closed(session)
    return session_after(session, bugs)


def _relies_on(session: Session, view: View) -> bool:
    """Whether the mark would be in doubt if the replica restarted now."""
    persisted = sum(other.persisted for other in session.views)
    safe = persisted >= session.last_quorum or view.persisted
    return session.mark is not None and view.counted and not safe


def states_written(session: Session, bugs: Bugs = NO_BUGS) -> Session:
    """Make recovered replicas active, because the server knows that its states are written."""
    assert session.due is not None
    views = []
    for number, (view, entry) in enumerate(zip(session.views, session.due, strict=True)):
        takes_part = entry == Entry(session.id, None)
        if view.stage is Stage.JOINED and takes_part and session.recovered(number):
            assert session.mark is not None
            view = view._replace(stage=Stage.ACTIVE, acknowledged=session.mark)
        views.append(view._replace(entry=entry))
    active = sum(view.stage is Stage.ACTIVE for view in views)
    opens = session.phase is Phase.RECOVERING and active >= session.quorum
    session = session._replace(
        views=tuple(views),
        due=None,
        sent=False,
        phase=Phase.OPEN if opens else session.phase,
    )
    return session_after(session, bugs)


def closed(session: Session) -> Session:
    """Return the session that has ended; only its id matters from now on."""
    return Session(session.id, (), session.quorum, session.last_quorum, Phase.CLOSED)


# ---- what follows from the reports


def session_after(session: Session, bugs: Bugs = NO_BUGS) -> Session:
    """Vote, choose the next step of each replica, and the states to write."""
    session = _vote(session, bugs)
    if session.contradicted:
        return session
    views = list(session.views)
    for number, view in enumerate(session.views):
        if view.stage is Stage.JOINED and view.step is None and not session.recovered(number):
            views[number] = _with_next_step(session, view, bugs)
    session = session._replace(views=tuple(views))
    recovered = sum(session.recovered(number) for number in range(len(views)))
    if recovered >= session.quorum and session.due is None:
        due = states(session)
        if due != tuple(view.entry for view in session.views):
            return session._replace(due=due)
    return session


def counted(session: Session) -> list[tuple[int, int]]:
    """Return position and number of each replica that counts, the highest position first."""
    found = [
        (view.position, number)
        for number, view in enumerate(session.views)
        if view.position is not None
        and view.in_last
        and view.role is not Role.UNKNOWN
        and view.interim is None
    ]
    return sorted(found, reverse=True)


def _vote(session: Session, bugs: Bugs) -> Session:
    if session.mark is not None:
        return session
    found = counted(session)
    absent = sum(view.in_last for view in session.views) - len(found)
    decided = decide([position for position, _ in found], absent, session.last_quorum, bugs)
    if decided is None or decided < session.known:
        return session
    numbers = {number for _, number in found}
    views = tuple(v._replace(counted=n in numbers) for n, v in enumerate(session.views))
    return session._replace(mark=decided, views=views)


def decide(positions: list[int], absent: int, quorum: int, bugs: Bugs = NO_BUGS) -> int | None:
    """Return the highest position that a quorum supports, None if it is not decided yet."""
    for position in sorted(set(positions), reverse=True):
        supports = sum(other >= position for other in positions)
        if supports >= quorum:
            return position
        if supports + absent >= quorum:
            return positions[-1] if Bug.MINORITY_MARK in bugs else None
    return None


def _with_next_step(session: Session, view: View, bugs: Bugs) -> View:
    assert view.position is not None
    position, mark = view.position, session.mark
    if mark is None:
        if view.interim is not None and position >= view.floor:
            return view._replace(step=Step(Do.MARK, view.interim))
        return view._replace(step=_copy(session, position, view.interim))
    view = view._replace(interim=None)
    if view.marked or position < min(view.floor, mark):
        return view._replace(step=_copy(session, position, mark))
    if position >= mark and not view.trimmed:
        return view._replace(trimmed=True, step=Step(Do.CUT, mark))
    return view._replace(step=Step(Do.MARK, mark))


def _copy(session: Session, position: int, bound: int | None) -> Step | None:
    ends = {number: end for end, number in counted(session) if end > position}
    if session.mark is not None:
        recovered = (n for n in range(len(session.views)) if session.recovered(n))
        ends |= dict.fromkeys(recovered, session.mark)
    usable = [
        (len(session.views[number].unreadable), end, number)
        for number, end in ends.items()
        if position + 1 not in session.views[number].unreadable
        and session.views[number].stage is not Stage.FAILED
    ]
    if not usable:
        return None
    _, _, source = min(usable)
    end = min(ends.values())
    last = end if bound is None else min(end, bound)
    return Step(Do.COPY, position + 1, last - position, source) if last > position else None


def states(session: Session) -> tuple[Entry | None, ...]:
    """Return the state of each assigned replica to write (spec/zookeeper.md section 6)."""
    assert session.mark is not None
    return tuple(
        _state(session, number, session.mark) if view.assigned else None
        for number, view in enumerate(session.views)
    )


def _state(session: Session, number: int, mark: int) -> Entry:
    view = session.views[number]
    if session.recovered(number):
        return Entry(session.id, None)
    if view.marked:
        return Entry(session.id, mark)
    if view.entry is None:
        return Entry(NEVER, mark)
    return Entry(view.entry.session, mark) if view.entry.closing is None else view.entry


def with_view(session: Session, number: int, view: View) -> Session:
    """Return the session with another view of one replica."""
    views = (*session.views[:number], view, *session.views[number + 1 :])
    return session._replace(views=views)
