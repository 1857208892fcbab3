"""Bugs to plant into the operator's access for clients outside of the Kubernetes cluster."""

from __future__ import annotations

from tests.mutants.planting import Package, Planted, nodes

_OUTSIDE = "unit/operator/test_operator_outside.py"
_OBJECTS = "unit/operator/test_operator_objects.py"

OUTSIDE_ACCESS_BUGS = (
    Planted(
        "the slot of a server that still stops is given to another one",
        Package.OPERATOR,
        "slot = None if pod.has_ended else _slot_of(pod.label, count)\n",
        "slot = None if pod.has_ended or pod.stops else _slot_of(pod.label, count)\n",
        "Clients outside reach another server than the one that has their partition.",
        nodes(
            "unit/operator/test_operator_slots.py::test_slot_of_a_pod_that_stops_is_not_given_away"
        ),
    ),
    Planted(
        "two servers may have one slot",
        Package.OPERATOR,
        "free -= {slot}\n",
        "free -= set()\n",
        "One Service leads to two servers.",
        nodes(
            "unit/operator/test_operator_slots.py::test_slots_are_unique_and_within_their_number"
        ),
    ),
    Planted(
        "outside addresses of an administrator are deleted",
        Package.OPERATOR,
        "if was_given and must_delete:\n",
        "if must_delete:\n",
        "Clients of a gateway that the operator does not know lose the cluster.",
        nodes(f"{_OUTSIDE}::test_addresses_of_an_administrator_stay_without_access_in_the_spec"),
    ),
    Planted(
        "Services for clients outside stay open until ZooKeeper answers",
        Package.OPERATOR,
        'yield from _delete(live for live in services if live["metadata"]["name"] != kept)\n',
        "yield from _delete(\n"
        "    live for live in services "
        'if present is not None and live["metadata"]["name"] != kept\n'
        ")\n",
        "An administrator cannot close the access to a cluster that fails.",
        nodes(
            f"{_OUTSIDE}::test_services_are_closed_without_zookeeper_and_the_addresses_are_deleted_later"
        ),
    ),
    Planted(
        "the certificate is not issued again when the outside names change",
        Package.OPERATOR,
        "{names.tls_name(desired.name, desired.namespace)} != {*outside}",
        "{names.tls_name(desired.name, desired.namespace)} != {*outside} and False",
        "Clients outside refuse the certificates of the servers.",
        nodes(
            "unit/operator/test_operator_outside_certificates.py::test_certificate_of_the_processes_is_issued_again_when_the_outside_names_change"
        ),
    ),
    Planted(
        "a refused Service for clients outside stops all other changes",
        Package.OPERATOR,
        "    return result + plan_outside(desired, observed)\n",
        "    return plan_outside(desired, observed) + result\n",
        "A quota on load balancers keeps the operator from repairing the cluster.",
        nodes(f"{_OUTSIDE}::test_refused_access_stops_no_other_change"),
    ),
    Planted(
        "a server gets a slot although it was not taken from another one",
        Package.OPERATOR,
        "return isinstance(later, SetSlot | WriteOutsideAddresses)\n",
        "return False\n",
        "One Service leads to two servers.",
        nodes(f"{_OUTSIDE}::test_slots_are_not_given_after_one_was_not_taken"),
    ),
    Planted(
        "outside addresses that an administrator has changed meanwhile are replaced",
        Package.OPERATOR,
        "OutsideAddresses(wanted) if before.addresses == expected else before\n",
        "OutsideAddresses(wanted)\n",
        "The addresses that an administrator of an adopted cluster has set are lost.",
        nodes(
            "unit/operator/test_operator_outside_shell.py::test_addresses_that_changed_since_the_observation_are_not_replaced"
        ),
    ),
    Planted(
        "Services of a pool that is not seen for a moment are deleted",
        Package.OPERATOR,
        'and live["metadata"]["labels"].get(POOL_LABEL) not in unseen\n',
        "and True\n",
        "Clients outside lose their connections to storages that run on.",
        nodes(
            "unit/operator/test_operator_outside.py::test_pool_that_is_not_seen_for_a_moment_keeps_its_services_and_addresses"
        ),
    ),
    Planted(
        "outside addresses of a pool that is not seen for a moment are removed",
        Package.OPERATOR,
        "wanted = foreign | _addresses_of_unseen(desired, present) | addresses\n",
        "wanted = foreign | addresses\n",
        "Clients outside find storages no longer that run on.",
        nodes(
            "unit/operator/test_operator_outside.py::test_pool_that_is_not_seen_for_a_moment_keeps_its_services_and_addresses"
        ),
    ),
    Planted(
        "the certificate is issued forever if the host is the name of the cluster",
        Package.OPERATOR,
        "return tuple(sorted(hosts - {names.tls_name(desired.name, desired.namespace)}))\n",
        "return tuple(sorted(hosts))\n",
        "Every reconcile issues a certificate, and nothing else changes any more.",
        nodes(
            "unit/operator/test_operator_outside_certificates.py::test_certificate_of_the_processes_is_issued_again_when_the_outside_names_change"
        ),
    ),
    Planted(
        "access from outside opens the admin port of storages",
        Package.OPERATOR,
        "admin_ports = (spec.admin_port,) if access.admin_ports else ()\n",
        "admin_ports = (spec.admin_port,)\n",
        "Every pod and every client outside may try to administer a storage.",
        nodes(f"{_OBJECTS}::test_access_from_outside_opens_the_data_port_of_storages_and_no_other"),
    ),
)
