"""Bugs to plant into connections, links and TLS, hunted by tests."""

from __future__ import annotations

from tests.mutants.planting import Package, Planted, nodes

NET_BUGS = (
    Planted(
        "queued frames are dropped by a close",
        Package.NET,
        "if not self.closed:\n    self._flush()\n    self._end(reason)\n",
        "if not self.closed:\n    self._end(reason)\n",
        "The last answers before a close are never sent.",
        nodes("unit/net/test_net_connection.py::test_close_reports_the_loss_once_on_each_side"),
    ),
    Planted(
        "a close waits for a peer that does not read",
        Package.NET,
        "self._timer = self._loop.call_later(LINGER_SECONDS, self._transport.abort)\n",
        "",
        "A peer that does not read keeps its socket open forever.",
        nodes(
            "unit/net/test_net_connection.py::test_closed_connection_is_aborted_after_the_linger_time"
        ),
    ),
    Planted(
        "slow readers are not counted",
        Package.NET,
        "self._slow_readers.enter(self)\n",
        "pass\n",
        "Many slow readers fill the memory of a server.",
        nodes(
            "unit/net/test_net_slow_readers.py::test_unsent_bytes_are_those_that_the_socket_has_not_taken"
        ),
    ),
    Planted(
        "readers that were slow for a moment are closed",
        Package.NET,
        "slow = [sender for sender, since in self._since.items() if since <= slow_before]\n",
        "slow = list(self._since)\n",
        "A storage closes the connection of a server that reads a large answer.",
        nodes(
            "unit/net/test_net_slow_readers.py::test_readers_that_fall_behind_for_a_moment_are_not_closed"
        ),
    ),
    Planted(
        "a listener reads from a congested peer",
        Package.NET,
        "(self._dialer or not self.congested)",
        "True",
        "Answers to a peer that does not read fill the memory.",
        nodes(
            "unit/net/test_net_connection.py::test_congested_dialer_keeps_reading_and_congested_listener_stops"
        ),
    ),
    Planted(
        "a dialer stops reading while it is congested",
        Package.NET,
        "(self._dialer or not self.congested)",
        "not self.congested",
        "Two congested sides wait for each other forever.",
        nodes(
            "unit/net/test_net_connection.py::test_congested_dialer_keeps_reading_and_congested_listener_stops"
        ),
    ),
    Planted(
        "a silent dialer sends no keep-alive",
        Package.NET,
        "if self._loop.time() - self._last_write_at >= KEEP_ALIVE_SECONDS:\n",
        "if self._loop.time() - self._last_write_at >= 2 * KEEP_ALIVE_SECONDS:\n",
        "Middleboxes drop the connection.",
        nodes("unit/net/test_net_connection.py::test_idle_dialer_sends_keep_alives"),
    ),
    Planted(
        "a peer without a Hello is not disconnected",
        Package.NET,
        "self.abort(reason)\n",
        "",
        "Connections that never finish their handshake stay open.",
        nodes("unit/net/test_net_connection.py::test_peer_without_a_hello_is_disconnected"),
    ),
    Planted(
        "messages are handled after a violation of the protocol",
        Package.NET,
        "self.abort(str(error))\n",
        "pass\n",
        "A connection whose frames cannot be decoded stays open.",
        nodes(
            "unit/net/test_net_connection.py::test_message_refused_by_its_handler_closes_the_connection"
        ),
    ),
    Planted(
        "pending requests of a lost connection get no answer",
        Package.NET,
        "for on_answer in pending.values():\n    on_answer(error)\n",
        "",
        "Their callers wait forever.",
        nodes("unit/net/test_net_rpc.py::test_rpc_pending_calls_fail_with_the_connection"),
    ),
    Planted(
        "a refused handshake counts as an open connection",
        Package.NET,
        "if isinstance(answer, self._port.failure):\n    self.close()\n",
        "if isinstance(answer, ConnectionLost):\n    self.close()\n",
        "A server uses the storage of another cluster.",
        nodes("unit/net/test_net_rpc.py::test_rpc_open_at_another_cluster_is_refused"),
    ),
    Planted(
        "a request on a closed connection waits forever",
        Package.NET,
        "asyncio.get_running_loop().call_soon(on_answer, ConnectionLost("
        '"connection closed"))\nreturn\n',
        "return\n",
        "Its caller gets no answer.",
        nodes("unit/net/test_net_rpc.py::test_rpc_pending_calls_fail_with_the_connection"),
    ),
    Planted(
        "a connection that did not work resets the backoff",
        Package.NET,
        'if self._useful:\n    failures, last_problem = 0, ""\n',
        'if problem:\n    failures, last_problem = 0, ""\n',
        "A peer that accepts connections and drops them is dialed without a pause.",
        nodes("unit/net/test_net_link.py::test_link_with_the_same_problem_again_logs_it_once"),
    ),
    Planted(
        "a lost connection is not reported",
        Package.NET,
        "self.connection = None\nself._handler.down()\n",
        "self.connection = None\n",
        "Requests are sent to a connection that is closed.",
        nodes("unit/net/test_net_link.py::test_link_after_a_loss_opens_the_next_connection"),
    ),
    Planted(
        "a connection that ended while it opened is used",
        Package.NET,
        'if not self._loss.done():\n    log.info("%s: connected", self._name)\n',
        'if self.connection is None:\n    log.info("%s: connected", self._name)\n',
        "The loss of the connection is never reported.",
        nodes("unit/net/test_net_link.py::test_link_lost_while_opening_is_neither_up_nor_down"),
    ),
    Planted(
        "delays grow without a limit",
        Package.NET,
        "return float(min(self.first_seconds * 2 ** min(failures, 30), self.longest_seconds))\n",
        "return float(self.first_seconds * 2 ** min(failures, 30))\n",
        "A peer that was away for an hour is dialed after another hour.",
        nodes("unit/net/test_net_backoff.py::test_backoff_delay_doubles_up_to_the_longest"),
    ),
    Planted(
        "a peer whose TLS handshake failed stays connected",
        Package.NET,
        "connection.abort(why)\n",
        "pass\n",
        "Connections that were refused are never removed.",
        nodes("unit/net/test_net_tls.py::test_refused_peer_leaves_no_connection"),
    ),
    Planted(
        "a listener accepts peers without a certificate",
        Package.NET,
        "else:\n    context.verify_mode = ssl.CERT_REQUIRED\n",
        "else:\n    context.verify_mode = ssl.CERT_OPTIONAL\n",
        "A client without a certificate of the CA is served.",
        nodes(
            "unit/net/test_net_tls.py::test_listener_with_a_ca_refuses_clients_without_certificate"
        ),
    ),
    Planted(
        "a dialer does not compare the peer's name",
        Package.NET,
        "context.check_hostname = self.ca is not None and self.verify_server_name\n",
        "context.check_hostname = False\n",
        "A process with another certificate of the CA can impersonate a server.",
        nodes("unit/net/test_net_tls.py::test_certificate_of_another_name_is_refused_with_a_hint"),
    ),
    Planted(
        "renewed certificates are not loaded",
        Package.NET,
        "elif stamp != self._stamp:\n",
        "elif not stamp:\n",
        "A process serves its certificate until it expires.",
        nodes(
            "unit/net/test_net_tls_reload.py::test_new_authority_applies_to_new_connections_only"
        ),
    ),
    Planted(
        "an unusable renewed certificate is loaded again at each connection",
        Package.NET,
        "self._stamp = stamp\ntry:\n    self._loaded = load()\n",
        "try:\n    self._loaded = load()\n    self._stamp = stamp\n",
        "Each connection logs the same error.",
        nodes(
            "unit/net/test_net_tls_reload.py::test_unusable_replaced_files_keep_the_old_ones_and_are_logged_once"
        ),
    ),
    Planted(
        "a port accepts any number of connections",
        Package.NET,
        "if self.open < self.limit:\n",
        "if self.open >= 0:\n",
        "One process can use up the file handles of another.",
        nodes(
            "unit/net/test_net_accepted.py::test_connection_beyond_the_limit_is_closed_logged_once_and_counted"
        ),
    ),
    Planted(
        "the end of a connection is not counted",
        Package.NET,
        "self._connections.discard(connection)\nself._accepted.leave()\n",
        "self._connections.discard(connection)\n",
        "A port refuses all connections after a while.",
        nodes(
            "unit/net/test_net_accepted.py::test_connection_beyond_the_limit_is_closed_logged_once_and_counted"
        ),
    ),
    Planted(
        "incomplete messages are not bounded together",
        Package.NET,
        "return self.incomplete_bytes <= self.max_incomplete_bytes\n",
        "return True\n",
        "Many connections with incomplete messages fill the memory.",
        nodes(
            "unit/net/test_net_accepted.py::test_incomplete_messages_of_all_connections_together_are_bounded"
        ),
    ),
    Planted(
        "a keep-alive that is not due yet is the last one",
        Package.NET,
        "        self._last_write_at = self._loop.time()\n    self._schedule_keep_alive()\n",
        "        self._last_write_at = self._loop.time()\n",
        "An idle connection is closed by a middlebox.",
        nodes("unit/net/test_net_connection.py::test_idle_dialer_sends_keep_alives"),
    ),
    Planted(
        "an accepted socket that is cancelled at once stays counted",
        Package.NET,
        "task.add_done_callback(partial(self._opening_ended, peer_socket))\n",
        "task.add_done_callback(self._opening.discard)\n",
        "The garbage collector closes the socket, and it takes a place among the connections.",
        nodes(
            "unit/net/test_net_accepted.py::test_socket_that_is_accepted_in_the_turn_of_the_close_is_closed"
        ),
    ),
)
