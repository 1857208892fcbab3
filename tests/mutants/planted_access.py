"""Bugs to plant into the checks of what clients may do, hunted by tests."""

from __future__ import annotations

from tests.mutants.planting import Package, Planted, nodes

_SERVER = "unit/server/test_server_access.py::"
_CLIENT = "unit/client/test_client_denied_requests.py::"
_QUOTAS = "unit/server/test_server_client_quotas.py::"

ACCESS_BUGS = (
    Planted(
        "a single append is accepted without the right",
        Package.SERVER,
        "if denial is None:\n    permitted[partition] = singles\n",
        "if True:\n    permitted[partition] = singles\n",
        "A client without the right appends.",
        nodes(_SERVER + "test_appends_without_the_right_are_denied_and_not_in_the_log"),
    ),
    Planted(
        "a batch is accepted without the right",
        Package.SERVER,
        "self._deny_appends(batch_req_ids(req_id, len(appends)), denial)\nreturn\n",
        "pass\n",
        "A client without the right appends.",
        nodes(_SERVER + "test_appends_without_the_right_are_denied_and_not_in_the_log"),
    ),
    Planted(
        "a decision outlives the rules",
        Package.SERVER,
        "self._decided.clear()\n",
        "",
        "A revoked right stays in force.",
        nodes("unit/server/test_server_client_rights.py::test_decision_changes_with_the_rules"),
    ),
    Planted(
        "a revoked client keeps its feed",
        Package.SERVER,
        "close_without_right(connections, before, self.control.rules, self._hosted)\n",
        "pass\n",
        "A client without the right receives new transactions.",
        nodes(_SERVER + "test_client_that_loses_a_right_is_disconnected"),
    ),
    Planted(
        "a denied mount settles nothing",
        Package.CLIENT,
        "self._settle_waiting(Outcome.DENIED)\n",
        "pass\n",
        "An append of a client without the right waits forever.",
        nodes(_CLIENT + "test_denied_mount_settles_waiting_appends_and_keeps_sent_ones_in_doubt"),
    ),
    Planted(
        "a new connection resets the quota",
        Package.SERVER,
        "return not self.connections and (self.bucket is None or self.bucket.is_full(now))\n",
        "return not self.connections\n",
        "A client that connects again and again has no quota.",
        nodes(_QUOTAS + "test_new_connection_does_not_reset_the_rate"),
    ),
)
