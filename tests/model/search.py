"""Explore every state within the bounds, breadth first. Pure.

Replicas are interchangeable: two states that differ only in their numbers are one. A state is
stored as a short tuple of numbers, each of which stands for a part that many states share.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Hashable
from dataclasses import dataclass, field

from tests.model.values import Phase, Session
from tests.model.world import Action, Bounds, Broken, World, first_world, successors

Key = tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Found:
    """The outcome of a search."""

    states: int
    transitions: int
    complete: bool
    """Whether every state within the bounds was visited."""
    actions: Counter[str]
    broken: str | None = None
    trace: tuple[str, ...] = ()


@dataclass
class _Visited:
    """The states that were found, and the worlds that are to be explored."""

    parts: dict[Hashable, int] = field(default_factory=dict)
    parents: dict[Key, Key | None] = field(default_factory=dict)

    def key(self, world: World) -> Key:
        """Return the same key for all worlds that differ only in the numbers of replicas."""
        columns = [
            self.number(
                (
                    world.disks[n],
                    world.fences[n],
                    world.assigned[n],
                    world.entries[n],
                    world.copies[n],
                    *(_column(session, n) for session in world.servers),
                )
            )
            for n in range(len(world.disks))
        ]
        order = sorted(range(len(columns)), key=columns.__getitem__)
        sources = tuple(
            order.index(view.step.source)
            for session in world.servers
            if session.views
            for view in (session.views[n] for n in order)
            if view.step is not None and view.step.source >= 0
        )
        rest = (
            world.session,
            world.fixed,
            world.committed,
            world.restarts,
            world.moves,
            world.faulty,
            *(_rest(session) for session in world.servers),
        )
        return (self.number(rest), *(columns[n] for n in order), *sources)

    def number(self, part: Hashable) -> int:
        return self.parts.setdefault(part, len(self.parts))


def _column(session: Session, number: int) -> Hashable:
    if session.phase is Phase.CLOSED:
        return None
    view = session.views[number]
    if view.step is not None and view.step.source >= 0:
        view = view._replace(step=view.step._replace(source=0))  # the key has it apart
    return view, session.due[number] if session.due is not None else None


def _rest(session: Session) -> Hashable:
    return (
        session.id,
        session.quorum,
        session.last_quorum,
        session.phase,
        session.mark,
        session.known,
        session.contradicted,
        session.due is not None,
        session.sent,
    )


def search(bounds: Bounds, most_states: int = 10_000_000) -> Found:
    """Explore the states within ``bounds``, until an invariant is broken or all are visited."""
    visited = _Visited()
    start = first_world(bounds)
    first = visited.key(start)
    visited.parents[first] = None
    frontier = [(first, start)]
    actions: Counter[str] = Counter()
    transitions = 0
    while frontier:
        following = []
        for origin, world in frontier:
            for action, after in successors(world, bounds):
                transitions += 1
                actions[action.name] += 1
                if isinstance(after, Broken):
                    trace = (*_trace(visited, origin, bounds), _text(action))
                    states = len(visited.parents)
                    return Found(states, transitions, False, actions, str(after), trace)
                key = visited.key(after)
                if key not in visited.parents:
                    visited.parents[key] = origin
                    following.append((key, after))
        frontier = following
        if len(visited.parents) > most_states:
            return Found(len(visited.parents), transitions, False, actions)
    return Found(len(visited.parents), transitions, True, actions)


def _trace(visited: _Visited, last: Key, bounds: Bounds) -> list[str]:
    """Return the actions from the first state to ``last``, with the same numbers all along."""
    path = [last]
    while (parent := visited.parents[path[-1]]) is not None:
        path.append(parent)
    world, texts = first_world(bounds), []
    for key in reversed(path[:-1]):
        for action, after in successors(world, bounds):
            if isinstance(after, World) and visited.key(after) == key:
                texts.append(_text(action))
                world = after
                break
        else:
            raise AssertionError("the path of a state can be walked again")
    return texts


def _text(action: Action) -> str:
    session = f"session {action.session}: " if action.session >= 0 else ""
    replica = f"replica {action.replica} " if action.replica >= 0 else ""
    return f"{session}{replica}{action.name} {action.detail}".rstrip()
