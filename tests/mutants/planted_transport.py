"""Bugs to plant into the declaration of TLS in ZooKeeper and what follows it, hunted by tests."""

from __future__ import annotations

from tests.mutants.planting import Package, Planted, nodes

_TRANSPORT = "unit/metadata/test_metadata_transport.py::"

_SERVERS = 'servers = {str(server): Transport(used) for server, used in fields["servers"].items()}'

TRANSPORT_BUGS = (
    Planted(
        "the declaration of TLS changes settings that were given",
        Package.METADATA,
        "if tls is not None:\n    return tls\n",
        "if tls is not None and not tls.enabled:\n    return tls\n",
        "Who can write ZooKeeper turns off the TLS of a client that named it.",
        nodes(_TRANSPORT + "test_tls_is_on_without_a_declaration_and_given_settings_win"),
    ),
    Planted(
        "the option tls of the command line is ignored at ports",
        Package.CLI,
        "return await tls_of_cluster(cluster, target.tls)\n",
        "return await tls_of_cluster(cluster, None)\n",
        "A command with --tls on sends plaintext.",
        nodes("unit/cli/test_cli_running.py::test_tls_of_a_verb_follows_the_servers_unless_given"),
    ),
    Planted(
        "TLS of other servers is ignored by a plaintext server",
        Package.METADATA,
        "if Transport.TLS in declared:\n",
        "if declaration is Transport.TLS:\n",
        "One server without TLS makes clients send plaintext to a cluster with TLS.",
        nodes(
            _TRANSPORT + "test_declare_plaintext_needs_all_registered_servers",
            _TRANSPORT + "test_declare_keeps_its_rules_in_any_order",
        ),
    ),
    Planted(
        "a server that has declared nothing counts as plaintext",
        Package.METADATA,
        "elif None not in declared:\n",
        "elif True:\n",
        "One server without TLS turns off the TLS of a cluster of Waltz 0.13.2.",
        nodes(_TRANSPORT + "test_declare_plaintext_needs_all_registered_servers"),
    ),
    Planted(
        "a server declares TLS only after its znode",
        Package.METADATA,
        "await self._declare_transport()\nself._is_new_member = True\n",
        "self._is_new_member = True\n",
        "Clients find a server with TLS, and send plaintext.",
        nodes(_TRANSPORT + "test_server_declares_before_and_after_it_has_registered"),
    ),
    Planted(
        "a registration without an answer is not declared again",
        Package.METADATA,
        "if self._is_new_member and not isinstance(step, CreateNode):\n",
        "if False:\n",
        "Clients find a server with TLS, and send plaintext.",
        nodes(_TRANSPORT + "test_server_declares_before_and_after_it_has_registered"),
    ),
    Planted(
        "an equal declaration is not written after the registration",
        Package.METADATA,
        "if after == before and not must_write:\n",
        "if after == before:\n",
        "A plaintext server that read the members before leaves out one with TLS.",
        nodes(
            _TRANSPORT + "test_plaintext_server_that_read_the_members_before_does_not_turn_tls_off"
        ),
    ),
    Planted(
        "a declaration is written whatever the version is",
        Package.METADATA,
        "await store.set(path, data, stored.version)\n",
        "await store.set(path, data, -1)\n",
        "Of two servers that declare at once, the declaration of one is lost.",
        nodes(
            _TRANSPORT + "test_plaintext_server_that_read_the_members_before_does_not_turn_tls_off"
        ),
    ),
    Planted(
        "a declaration is made only at the start of a server",
        Package.METADATA,
        "self._on_partitions(partitions)\n"
        "# Another server may have left. Clients use plaintext only if every registered\n"
        "# server has declared it. If the server that left was the only one that had not,\n"
        "# this declaration makes clients use plaintext.\n"
        "await self._declare_transport()\n",
        "self._on_partitions(partitions)\n",
        "After the last server with TLS has died, clients use TLS at plaintext servers.",
        nodes(_TRANSPORT + "test_last_server_with_tls_that_dies_leaves_plaintext_to_the_others"),
    ),
    Planted(
        "a declaration of an unknown format is accepted",
        Package.METADATA,
        'if fields["format"] != _FORMAT:\n'
        "    raise ValueError(f\"format {fields['format']} is not {_FORMAT}\")\n"
        f"{_SERVERS}\n",
        f"{_SERVERS}\n",
        "A client follows a declaration whose meaning it does not know.",
        nodes(_TRANSPORT + "test_malformed_transport_is_an_error_that_names_the_znode"),
    ),
    Planted(
        "a malformed declaration counts as none",
        Package.CLIENT,
        "raise ClusterUnreachable(str(problem)) from None\n",
        "return replace(options, tls=TlsConfig())\n",
        "A client does not say that the znode is damaged.",
        nodes(
            "unit/client/test_client_tls_of_cluster.py::test_client_without_tls_settings_names_a_malformed_declaration"
        ),
    ),
    Planted(
        "a client counts the declaration of a server that has died",
        Package.METADATA,
        "return _tls_settings(for_clients(declared, await _registered(cluster)))\n",
        "return tls_as_declared(declared)\n",
        "After a server with TLS died before it registered, clients use TLS at plaintext servers.",
        nodes(
            _TRANSPORT + "test_server_with_tls_that_dies_without_partitions_leaves_plaintext",
        ),
    ),
    Planted(
        "a client counts a registered server without a declaration as plaintext",
        Package.METADATA,
        "if declarations == {Transport.PLAINTEXT}:\n",
        "if Transport.TLS not in declarations:\n",
        "A client sends plaintext to a server of Waltz 0.13.2 that may use TLS.",
        nodes(
            _TRANSPORT + "test_server_with_tls_that_dies_without_partitions_leaves_plaintext",
            _TRANSPORT + "test_client_uses_plaintext_only_if_no_registered_server_may_use_tls",
        ),
    ),
)
