"""Bugs to plant into the answers to appends, and into the feeds that clients need without them."""

from __future__ import annotations

from tests.mutants.planting import Package, Planted, nodes

_CLIENT = "unit/client/test_client_answered_appends.py::"
_SERVER = "unit/server/test_server_answered_appends.py::"

ANSWER_BUGS = (
    Planted(
        "the client's mark passes an append in doubt",
        Package.CLIENT,
        "mark = self.log_mark if oldest is None else oldest.log_mark\n",
        "mark = self.log_mark\n",
        "The feed does not show the append, so that the client sends it again: it is there twice.",
        nodes(f"{_CLIENT}test_mark_does_not_pass_an_append_in_doubt"),
    ),
    Planted(
        "an append is sent with a log mark above its own id",
        Package.CLIENT,
        "self._sent.add(SentAppend(self._ids.last, token, req_id, self._feed_need.log_mark))\n",
        "self._sent.add(SentAppend(self._ids.last, token, req_id, self._feed_need.log_mark + 1))\n",
        "The mark passes an append in doubt whose transaction is the next one.",
        nodes(f"{_CLIENT}test_mark_does_not_pass_an_append_in_doubt"),
    ),
    Planted(
        "an answered commit settles earlier appends as absent",
        Package.CLIENT,
        "self._sent.settle(seq, Outcome.COMMITTED, number)\n",
        "self._sent.commit(seq, number)\n",
        "An append whose answer was lost is reported absent, and sent again.",
        nodes(
            f"{_CLIENT}test_later_commit_does_not_settle_earlier_appends_but_looks_for_them",
        ),
    ),
    Planted(
        "lost answers are still expected after a new mount",
        Package.CLIENT,
        "self._feed_need.expect_no_answers(self._ids.last)\n",
        "pass\n",
        "The client requests no feed for an append whose answer is lost.",
        nodes(f"{_CLIENT}test_lost_answer_is_found_in_the_feed"),
    ),
    Planted(
        "a server's answer that the client is ahead is final at once",
        Package.CLIENT,
        "return is_client_ahead or call.num_ahead >= AHEAD_CONFIRMATIONS\n",
        "return True\n",
        "A server that has lost the partition makes an application stop whose mark is right.",
        nodes(
            "unit/client/test_client_append_calls.py"
            "::test_client_sends_again_after_a_stale_server_answers_ahead"
        ),
    ),
    Planted(
        "answers have the ids of the transactions before",
        Package.SERVER,
        "answer = append.req_id + pack(committed, transaction_id)\n",
        "answer = append.req_id + pack(committed, max(0, transaction_id - 1))\n",
        "An append is answered with the id of another transaction.",
        nodes(f"{_SERVER}test_commits_of_one_connection_are_answered_together_in_log_order"),
    ),
    Planted(
        "an answered append that may be in the log is answered as absent",
        Package.SERVER,
        "self._batches.ended(appends, OutcomeKind.UNKNOWN)\n",
        "self.absent(appends, 0)\n",
        "A client sends an append again that the next owner has found in the log.",
        nodes(f"{_SERVER}test_appends_left_unresolved_are_not_answered"),
    ),
    Planted(
        "appends of an older generation are answered as absent",
        Package.SERVER,
        'generation, and looks for the append in the log.\n"""\n'
        "self._batches.ended(appends, OutcomeKind.ABSENT)\n",
        'generation, and looks for the append in the log.\n"""\nself.absent(appends, 0)\n',
        "A client that does not know the new generation sends them again and again.",
        nodes(f"{_SERVER}test_dropped_appends_are_not_answered"),
    ),
    Planted(
        "a flush is answered before the appends before it",
        Package.SERVER,
        "self._answers.committed(appends, first_id, self._mark)\n"
        "self._resolved(appends, first_id)\n",
        "self._resolved(appends, first_id)\n"
        "self._answers.committed(appends, first_id, self._mark)\n",
        "The client takes the answers for lost, and requests a feed.",
        nodes(f"{_SERVER}test_answers_precede_the_answer_to_a_later_flush"),
    ),
    Planted(
        "a mark beyond the end of the log is accepted",
        Package.SERVER,
        "if append.client_mark > self._mark:\n",
        "if append.client_mark > self._mark and False:\n",
        "Locks refuse nothing, because no transaction took them after the mark.",
        nodes(
            f"{_SERVER}test_append_with_a_mark_beyond_the_log_is_answered_ahead_with_the_last_id"
        ),
    ),
    Planted(
        "a mount without a feed is not checked",
        Package.SERVER,
        "if position > mark:\n",
        "if position > mark and request.fed:\n",
        "A client of another log appends without an error.",
        nodes(f"{_SERVER}test_mount_of_a_client_that_is_ahead_is_refused"),
    ),
)
