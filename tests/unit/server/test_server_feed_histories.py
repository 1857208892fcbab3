"""Test that feeds in random histories have no gap and no repetition, and never stop."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st

from tests.support.feed_world import Client, feed, mount, put, run, world_with

_CLIENTS = st.integers(0, 2)
_STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("feed"), _CLIENTS),
        st.tuples(st.just("put"), st.integers(1, 150)),
        st.tuples(st.just("congest"), _CLIENTS),
        st.tuples(st.just("drain"), _CLIENTS),
        st.tuples(st.just("hold"), st.just(0)),
        st.tuples(st.just("release"), st.just(0)),
        st.tuples(st.just("turn"), st.just(0)),
        st.tuples(st.just("remount"), _CLIENTS),
    ),
    max_size=30,
)


class ClientGroup:
    """Three clients that stream, a writer, and a storage that may let reads wait."""

    def __init__(self, last: int, behind: list[int], read_limit: int | None) -> None:
        self.world, self.writer = world_with(last), Client(9)
        for storage in self.world.storages.values():
            storage.read_limit = read_limit
        mount(self.world, self.writer, last)
        self.clients = [Client(n) for n in (1, 2, 3)]
        self.starts = [max(-1, last - n) for n in behind]
        self.answered = [0, 0, 0]
        for n in range(3):
            self.remount(n)

    def mark(self, n: int) -> int:
        self.clients[n].take(self.world)
        return self.clients[n].got[-1] if self.clients[n].got else self.starts[n]

    def remount(self, n: int) -> None:
        mark = self.mark(n)
        self.answered[n] = len(self.clients[n].messages)
        mount(self.world, self.clients[n], mark)

    def feed(self, n: int) -> None:
        mark, count = self.mark(n), len(self.clients[n].messages)
        if count > self.answered[n]:
            self.answered[n] = count
            feed(self.world, self.clients[n], mark)

    def put(self, count: int) -> None:
        put(self.world, self.writer, count)

    def congest(self, n: int) -> None:
        self.clients[n].congest()

    def drain(self, n: int) -> None:
        self.clients[n].drain(self.world)

    def hold(self, _: int) -> None:
        self.world.hold("a")

    def release(self, _: int) -> None:
        self.world.release("a")

    def turn(self, _: int) -> None:
        self.world.turn()

    def finish(self) -> None:
        self.release(0)
        for n in range(3):
            self.drain(n)
        end = self.world.core.high_water_mark
        while any(self.mark(n) < end for n in range(3)):
            before = [self.mark(n) for n in range(3)]
            run(self.world, *self.clients)
            for n in range(3):
                self.feed(n)
            run(self.world, *self.clients)
            assert [self.mark(n) for n in range(3)] != before, "a feed has stopped"


@given(
    st.integers(0, 700),
    st.lists(st.integers(0, 700), min_size=3, max_size=3),
    st.sampled_from([None, 7, 48]),
    _STEPS,
)
@settings(max_examples=60)
def test_feeds_have_no_gap_and_no_repetition_in_any_history(
    last: int, behind: list[int], read_limit: int | None, steps: list[tuple[str, int]]
) -> None:
    crowd = ClientGroup(last, behind, read_limit)
    for name, argument in steps:
        getattr(crowd, name)(argument)
    crowd.finish()
    end = crowd.world.core.high_water_mark
    for client, start in zip(crowd.clients, crowd.starts, strict=True):
        assert client.got == list(range(start + 1, end + 1))
