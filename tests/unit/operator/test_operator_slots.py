"""The slots of servers: unique, within their number, and kept until the pod is gone."""

from __future__ import annotations

from dataclasses import replace

from hypothesis import given, settings
from hypothesis import strategies as st

from waltz_operator.core.slots import ServerPod, assign_slots, slot_changes

_LABELS = st.one_of(
    st.none(),
    st.sampled_from(["", "-1", "00", " 1", "1.0", "x", "999999", "١"]),
    st.integers(0, 8).map(str),
)


@st.composite
def pods(draw: st.DrawFn) -> list[ServerPod]:
    """Return pods in any order, with any labels, as an administrator may have left them."""
    count = draw(st.integers(0, 8))
    made = [
        ServerPod(
            draw(st.sampled_from(["", "2026-01-01T00:00:00Z", "2026-01-02T00:00:00Z"])),
            f"server-{number}",
            draw(_LABELS),
            stops=draw(st.booleans()),
            has_ended=draw(st.booleans()),
        )
        for number in range(count)
    ]
    return draw(st.permutations(made))


def changed(before: list[ServerPod], count: int) -> list[ServerPod]:
    """Return the pods with the labels that the operator gives them."""
    changes = slot_changes(before, count)
    return [
        replace(pod, label=None if (slot := changes[pod.name]) is None else str(slot))
        if pod.name in changes
        else pod
        for pod in before
    ]


@settings(max_examples=300)
@given(pods(), st.integers(1, 9))
def test_slots_are_unique_and_within_their_number(before: list[ServerPod], count: int) -> None:
    taken = [slot for slot in assign_slots(before, count).values() if slot is not None]
    assert len({*taken}) == len(taken)
    assert all(0 <= slot < count for slot in taken)


@settings(max_examples=300)
@given(pods(), st.integers(1, 9))
def test_pod_keeps_its_slot_until_it_is_gone(before: list[ServerPod], count: int) -> None:
    labelled = changed(before, count)
    assert not slot_changes(labelled, count), "the labels are as wanted after one change"
    for gone in labelled:
        others = [pod for pod in labelled if pod != gone]
        new = ServerPod("2026-01-03T00:00:00Z", "server-new")
        slots = assign_slots([new, *others], count)
        for pod in others:
            if pod.label is not None:
                assert slots[pod.name] == int(pod.label)


@settings(max_examples=300)
@given(pods(), st.integers(1, 9))
def test_pod_that_runs_has_a_slot_unless_all_are_taken(before: list[ServerPod], count: int) -> None:
    slots = assign_slots(before, count)
    num_taken = sum(slot is not None for slot in slots.values())
    for pod in before:
        if not (pod.stops or pod.has_ended) and slots[pod.name] is None:
            assert num_taken == count
        if pod.has_ended:
            assert slots[pod.name] is None


def test_of_two_pods_with_one_slot_the_older_keeps_it() -> None:
    younger = ServerPod("2026-01-02T00:00:00Z", "a", "0")
    older = ServerPod("2026-01-01T00:00:00Z", "b", "0")
    assert slot_changes([younger, older], 3) == {"a": 1}
    assert slot_changes([younger, older], 1) == {"a": None}


def test_slot_of_a_pod_that_stops_is_not_given_away() -> None:
    stopping = ServerPod("2026-01-01T00:00:00Z", "old", "0", stops=True)
    new = ServerPod("2026-01-02T00:00:00Z", "new")
    assert assign_slots([stopping, new], 2) == {"old": 0, "new": 1}
    assert assign_slots([stopping, new], 1) == {"old": 0, "new": None}
    assert assign_slots([new], 1) == {"new": 0}
