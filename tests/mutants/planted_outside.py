"""Bugs to plant into outside addresses: their znode, and what dials them. Hunted by tests."""

from __future__ import annotations

from tests.mutants.planting import Package, Planted, nodes

_CLIENT = "unit/client/test_client_outside.py::"
_SHARED = "unit/client/test_client_outside_shared.py::"
_METADATA = "unit/metadata/test_metadata_outside.py::"

_CANNOT_READ = '    raise DialFailed(f"the outside addresses cannot be read: {why}") from problem\n'
_DECODED = (
    'return cls({inside: _text(outside) for inside, outside in fields["addresses"].items()})\n'
)

OUTSIDE_BUGS = (
    Planted(
        "a registered address without an outside address is dialed",
        Package.CLIENT,
        "raise NoOutsideAddress(no_outside_address(self._cluster, addresses, registered))\n",
        "return registered\n",
        "A client outside sends requests to the process that has that address there.",
        nodes(
            _CLIENT + "test_client_waits_for_a_missing_outside_address",
            _CLIENT + "test_missing_outside_address_is_in_the_errors_of_calls",
        ),
    ),
    Planted(
        "a change of outside addresses is not followed",
        Package.CLIENT,
        "self._changes += 1\n",
        "pass\n",
        "After a load balancer got another address, clients dial the old one.",
        nodes(_CLIENT + "test_changed_outside_address_is_used_by_the_next_connection"),
    ),
    Planted(
        "a change of outside addresses during their read is missed",
        Package.CLIENT,
        "self._changes_read = changes\n",
        "self._changes_read = self._changes\n",
        "A client dials an old outside address until the next change.",
        nodes(_CLIENT + "test_change_during_the_read_is_read_by_the_next_connection"),
    ),
    Planted(
        "outside addresses need ZooKeeper at each connection",
        Package.CLIENT,
        f"if self._changes_read is None:\n{_CANNOT_READ}",
        f"if True:\n{_CANNOT_READ}",
        "While ZooKeeper does not answer, clients outside cannot connect to servers again.",
        nodes(_CLIENT + "test_last_outside_addresses_are_used_while_zookeeper_does_not_answer"),
    ),
    Planted(
        "the storages that Spark reads are dialed by their registered addresses",
        Package.CLIENT,
        "network=self._network,\n",
        "network=TCP,\n",
        "Spark outside the network reads no replica.",
        nodes(_CLIENT + "test_replicas_are_read_by_the_outside_addresses_of_storages"),
    ),
    Planted(
        "outside addresses are written whatever the version is",
        Package.METADATA,
        "await store.set(path, data, stored.version)\n",
        "await store.set(path, data, -1)\n",
        "Of two writers at once, the addresses of one are lost.",
        nodes(_METADATA + "test_outside_addresses_of_two_writers_are_both_kept"),
    ),
    Planted(
        "outside addresses of an unknown format are accepted",
        Package.METADATA,
        'if fields["format"] != _FORMAT:\n'
        "    raise ValueError(f\"format {fields['format']} is not {_FORMAT}\")\n" + _DECODED,
        _DECODED,
        "A client dials addresses whose meaning it does not know.",
        nodes(
            _METADATA
            + "test_malformed_outside_addresses_are_an_error_that_names_the_znode_and_the_reason"
        ),
    ),
    Planted(
        "the option access of the command line is ignored at ports",
        Package.CLI,
        "return network_for(cluster, target.access)\n",
        'return network_for(cluster, "inside")\n',
        "A command with --access outside dials addresses that it cannot reach.",
        nodes(
            "unit/cli/test_cli_running.py::"
            "test_network_of_a_verb_dials_outside_addresses_only_with_the_access_outside"
        ),
    ),
    Planted(
        "one storage answers for two that have its outside address",
        Package.CLIENT,
        "others = [each for each in sharing if each in storages]\n",
        "others = [each for each in sharing if False]\n",
        "A rescue fences one storage twice and another never.",
        nodes(
            _SHARED + "test_storages_with_one_outside_address_are_both_not_dialed",
            _SHARED + "test_replicas_of_storages_with_one_outside_address_are_not_counted_twice",
        ),
    ),
    Planted(
        "two ports in use get one outside address",
        Package.CLI,
        "if others and registered in used:\n",
        "if False:\n",
        "A mistyped address leads to another storage.",
        nodes(
            "unit/cli/test_cli_outside.py::"
            "test_outside_set_refuses_one_address_for_two_ports_in_use"
        ),
    ),
    Planted(
        "a refused outside address means that no process runs",
        Package.CLIENT,
        "kind = TlsMismatch if isinstance(problem, TlsMismatch) else DialFailed\n",
        "kind = type(problem)\n",
        "From outside, the diagnosis calls a cluster critical that accepts appends.",
        nodes(
            _CLIENT + "test_refused_outside_address_does_not_say_that_no_process_listens",
            "unit/admin/test_operations_outside.py::"
            "test_diagnosis_outside_does_not_call_a_refused_outside_address_critical",
        ),
    ),
)
