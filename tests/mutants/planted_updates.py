"""Bugs to plant into the rule by which an operator of another version restarts no pod."""

from __future__ import annotations

from tests.mutants.planting import Package, Planted, nodes

_KEPT = 'return record.template, live["metadata"]["annotations"][POD_TEMPLATE_ANNOTATION]\n'

UPDATE_BUGS = (
    Planted(
        "an operator of another version restarts all pods",
        Package.OPERATOR,
        _KEPT,
        "return None\n",
        "Every update of the operator restarts every pod.",
        nodes(
            "unit/operator/test_operator_updates.py::test_operator_of_another_version_plans_nothing_and_reports_the_update"
        ),
    ),
    Planted(
        "a workload keeps its pod template although a user has changed the resources",
        Package.OPERATOR,
        "if record.specs != rendered.specs and not _specifies_same_pods(workload, record):\n",
        "if False:\n",
        "A new image never reaches the pods.",
        nodes(
            "unit/operator/test_operator_pod_templates.py::test_template_changes_only_if_a_user_asks_and_edits_are_repaired"
        ),
    ),
    Planted(
        "a workload keeps a pod template that a person has edited",
        Package.OPERATOR,
        _KEPT,
        _KEPT.replace("record.template", 'live["spec"]["template"]'),
        "The operator repairs no edited StatefulSet.",
        nodes(
            "unit/operator/test_operator_pod_templates.py::test_template_changes_only_if_a_user_asks_and_edits_are_repaired"
        ),
    ),
    Planted(
        "an answered request for an update is answered again",
        Package.OPERATOR,
        'is_requested = rendered.request not in ("", record.request)\n',
        'is_requested = rendered.request != ""\n',
        "After the first request, every update of the operator restarts every pod.",
        nodes(
            "unit/operator/test_operator_updates.py::test_way_back_to_the_earlier_operator_restarts_no_pod"
        ),
    ),
    Planted(
        "a set with pods of another version is created again for larger volumes",
        Package.OPERATOR,
        " in kept_workloads(desired, observed):",
        " in ():",
        "The record of the template is lost, and larger volumes restart the pods.",
        nodes(
            "unit/operator/test_operator_updates.py::test_set_with_pods_of_another_version_is_not_created_again_for_larger_volumes"
        ),
    ),
    Planted(
        "a value that an older operator does not know restarts pods that do not depend on it",
        Package.OPERATOR,
        "before = WaltzClusterSpec.model_validate(recorded)\n",
        "before = WaltzClusterSpec.model_validate(record.specs.get(_CLUSTER))\n",
        "After helm rollback, pods restart although no user has changed them.",
        nodes(
            "unit/operator/test_operator_pod_templates.py::test_field_of_a_cluster_counts_as_a_request_if_the_pods_depend_on_it"
        ),
    ),
    Planted(
        "a pool whose change is not applied yet counts as one of another operator",
        Package.OPERATOR,
        "yield RenderedWorkload(cluster, storage_set(cluster, pool, pool.spec.storages), pool)\n",
        "yield RenderedWorkload(cluster, storage_set(cluster, pool, pool.spec.storages))\n",
        "The condition UpdateAvailable recommends a command that replaces all pods.",
        nodes(
            "unit/operator/test_operator_updates.py::test_change_that_is_not_applied_yet_is_no_update_of_the_operator"
        ),
    ),
)
