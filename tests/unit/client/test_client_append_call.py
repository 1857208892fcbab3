"""One call of append: each of its appends keeps its first outcome."""

from __future__ import annotations

import asyncio

from waltz.client.append_call import AppendCall
from waltz.client.core.append_values import AppendResult, Outcome


async def test_append_keeps_its_first_outcome() -> None:
    call = AppendCall(0, None, None)
    first, second = call.begin(2)
    first.settle(AppendResult(first, Outcome.COMMITTED, 7))
    first.settle(AppendResult(first, Outcome.UNCERTAIN))
    assert call.without_outcome == [second]
    assert [(each.outcome, each.number) for each in call.outcomes] == [(Outcome.COMMITTED, 7)]
    ended = asyncio.ensure_future(call.wait_for_outcomes())
    await asyncio.sleep(0)
    assert not ended.done(), "a repeated outcome must not count for the other append"
    second.settle(AppendResult(second, Outcome.ABSENT))
    await ended
    assert [each.outcome for each in call.outcomes] == [Outcome.COMMITTED, Outcome.ABSENT]
