"""Bugs to plant into the rotation of the operator's certificate authority."""

from __future__ import annotations

from tests.mutants.planting import Package, Planted, nodes

_ROTATION = "unit/operator/test_operator_rotation.py"

ROTATION_BUGS = (
    Planted(
        "the next step of a rotation does not wait for the pods",
        Package.OPERATOR,
        "if issued.not_loaded:\n",
        "if False:\n",
        "Processes refuse the certificates of the new authority, and appends fail.",
        nodes(f"{_ROTATION}::test_phase_waits_for_every_pod_to_present_its_certificate"),
    ),
    Planted(
        "the next step of a rotation does not wait for clients",
        Package.OPERATOR,
        "age_of_younger = min(issued.age_seconds, to_clients.age_seconds)\n",
        "age_of_younger = issued.age_seconds\n",
        "Clients with a certificate of their own refuse the certificates of the servers.",
        nodes(f"{_ROTATION}::test_phase_gives_clients_the_time_of_the_spec"),
    ),
    Planted(
        "the next step of a rotation does not wait for the certificate of clients",
        Package.OPERATOR,
        "secrets_follow_phase = all(authority.secret_follows_phase(holder) for holder in Holder)\n",
        "secrets_follow_phase = authority.secret_follows_phase(Holder.PROCESSES)\n",
        "Servers refuse clients, whose certificates are those of an earlier step.",
        nodes(f"{_ROTATION}::test_phase_waits_until_the_certificate_of_the_clients_is_issued"),
    ),
    Planted(
        "the certificate of clients is not issued again in a rotation",
        Package.OPERATOR,
        "if issued is None or is_outdated or issued.days < _RENEWAL_DAYS:\n",
        "if issued is None or issued.days < _RENEWAL_DAYS:\n",
        "The rotation does not continue.",
        nodes(f"{_ROTATION}::test_phase_waits_until_the_certificate_of_the_clients_is_issued"),
    ),
    Planted(
        "the certificate of clients is valid for servers",
        Package.OPERATOR,
        "Holder.CLIENTS: (ExtendedKeyUsageOID.CLIENT_AUTH,),\n",
        "Holder.CLIENTS: (ExtendedKeyUsageOID.SERVER_AUTH, ExtendedKeyUsageOID.CLIENT_AUTH),\n",
        "A program can pose as a server.",
        nodes(
            "unit/operator/test_operator_rotation_properties.py::test_clients_cannot_pose_as_servers"
        ),
    ),
    Planted(
        "storages admit clients at their admin port",
        Package.OPERATOR,
        'return {"storage.allowedNames": name, "storage.admin.allowedNames": name}\n',
        'return {"storage.allowedNames": name}\n',
        "A program can remove replicas.",
        nodes(
            "unit/operator/test_operator_objects.py::test_storages_admit_only_the_certificate_of_the_processes"
        ),
    ),
    Planted(
        "a rotation continues while replicas are unhealthy",
        Package.OPERATOR,
        "return health_obstacle(present)\n",
        "return None\n",
        "A change begins while another failure is repaired.",
        nodes(f"{_ROTATION}::test_phase_waits_while_a_replica_is_unhealthy"),
    ),
    Planted(
        "a rotation continues during a rolling change",
        Package.OPERATOR,
        "if any(state != AllPodsCurrent() for state in roll_states(desired, observed)):\n",
        "if False:\n",
        "A version that does not start is rolled out beside another change.",
        nodes(f"{_ROTATION}::test_phase_waits_for_a_rolling_change"),
    ),
    Planted(
        "processes trust only the new authority while the old one signed certificates in use",
        Package.OPERATOR,
        "if phase in (RotationPhase.TRUST, RotationPhase.SIGN):\n",
        "if phase is RotationPhase.TRUST:\n",
        "Processes that have loaded new certificates refuse the others.",
        nodes(
            "unit/operator/test_operator_rotation_properties.py::test_peers_of_neighbouring_phases_accept_each_other"
        ),
    ),
    Planted(
        "certificates of another authority are issued without an overlap",
        Package.OPERATOR,
        "if authority is not None and not authority.may_issue:\n",
        "if False:\n",
        "A restored backup of the authority interrupts all connections.",
        nodes(f"{_ROTATION}::test_secret_of_another_authority_is_a_problem_and_issues_nothing"),
    ),
    Planted(
        "the key of the old authority is kept",
        Package.OPERATOR,
        'return {"previous.key": None}\n',
        'return {"previous.crt": None}\n',
        "The rotation does not end, and a retired key stays in the secret.",
        nodes(f"{_ROTATION}::test_parts_of_the_authority_are_those_of_each_phase"),
    ),
    Planted(
        "an authority that is about to expire is not rotated",
        Package.OPERATOR,
        "is_wanted = is_requested or authority.days < ROTATION_DAYS\n",
        "is_wanted = is_requested\n",
        "After ten years no process accepts another.",
        nodes(f"{_ROTATION}::test_authority_is_rotated_before_its_certificates_outlive_it"),
    ),
    Planted(
        "one request rotates for ever",
        Package.OPERATOR,
        'metadata["annotations"] = {ROTATE_CA_ANNOTATION: step.request}\n',
        "pass\n",
        "The authority is rotated again and again.",
        nodes(f"{_ROTATION}::test_one_value_of_the_annotation_causes_one_rotation"),
    ),
    Planted(
        "certificates are written over those of a later step",
        Package.OPERATOR,
        'body = {**body, "metadata": {**body["metadata"], "resourceVersion": version}}\n',
        "",
        "A late write brings back certificates that no process accepts any more.",
        nodes(
            "unit/operator/test_operator_rotation_steps.py::test_certificates_that_changed_meanwhile_are_not_overwritten"
        ),
    ),
)
