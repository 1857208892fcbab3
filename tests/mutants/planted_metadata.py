"""Bugs to plant into the access to ZooKeeper and into membership, hunted by tests."""

from __future__ import annotations

from tests.mutants.planting import Package, Planted, nodes

METADATA_BUGS = (
    Planted(
        "a foreign write is accepted as the own one",
        Package.METADATA,
        "if node.version == version + 1 and node.data == data:\n",
        "if node.version == version + 1:\n",
        "After a lost answer, a write of another process counts as this one's.",
        nodes(
            "unit/metadata/test_metadata_retry.py::test_compare_and_set_retried_after_another_write_fails"
        ),
    ),
    Planted(
        "the own write counts as a conflict after a lost answer",
        Package.METADATA,
        "if node.version == version + 1 and node.data == data:\n    return node.version\n",
        "",
        "A server ends its session because of its own write.",
        nodes(
            "unit/metadata/test_metadata_retry.py::test_compare_and_set_executed_without_an_answer_is_not_repeated"
        ),
    ),
    Planted(
        "an unanswered write is repeated without its version",
        Package.METADATA,
        "if node.version == version:\n    try:\n"
        "        return await store.set(path, data, version)\n",
        "if node.version >= version:\n    try:\n"
        "        return await store.set(path, data, node.version)\n",
        "A retry overwrites the write of the process that owns the node by now.",
        nodes(
            "unit/metadata/test_metadata_retry.py::test_compare_and_set_retried_after_another_write_fails"
        ),
    ),
    Planted(
        "an id is taken without a comparison",
        Package.METADATA,
        "encode_id(last.value + 1), last.version)",
        "encode_id(last.value + 1), -1)",
        "Two processes get one id.",
        nodes(
            "unit/metadata/test_metadata_cluster.py::test_assigned_ids_start_at_one_and_are_unique"
        ),
    ),
    Planted(
        "an id is used after a conflict",
        Package.METADATA,
        "except VersionConflict:\n    continue\nreturn last.value + 1\n",
        "except VersionConflict:\n    pass\nreturn last.value + 1\n",
        "Two processes get one id.",
        nodes(
            "unit/metadata/test_metadata_cluster.py::test_assigned_ids_start_at_one_and_are_unique"
        ),
    ),
    Planted(
        "a membership is read in two versions",
        Package.METADATA,
        "if children.version != assignment.version:\n    return None\n",
        "",
        "A server acts on an assignment and a list of servers that never were at one time.",
        nodes(
            "unit/metadata/test_metadata_interleaved.py::test_membership_whose_assignment_changes_during_the_read_is_read_again"
        ),
    ),
    Planted(
        "a server that leaves during a read is left out",
        Package.METADATA,
        "if node is None:\n    return None\n"
        'descriptor = _decode_znode(path, ServerDescriptor.decode, node.data or b"")\n',
        "if node is None:\n    continue\n"
        'descriptor = _decode_znode(path, ServerDescriptor.decode, node.data or b"")\n',
        "The membership has an older count of changes than its list of servers.",
        nodes(
            "unit/metadata/test_metadata_interleaved.py::test_membership_whose_server_leaves_during_the_read_is_read_again"
        ),
    ),
    Planted(
        "the admin lock of another session is entered",
        Package.METADATA,
        "if node.owner == self._store.health.session_id:\n",
        "if node.owner is not None:\n",
        "Two processes change the storage maps at the same time.",
        nodes(
            "unit/metadata/test_metadata_cluster.py::test_admin_lock_lets_one_change_run_at_a_time"
        ),
    ),
    Planted(
        "the admin lock of its next holder is released",
        Package.METADATA,
        "if node is not None and node.owner == self._owner:\n",
        "if node is not None:\n",
        "A process whose session expired deletes the lock of another.",
        nodes(
            "unit/metadata/test_metadata_cluster.py::test_admin_lock_lost_with_the_session_is_not_taken_from_its_next_holder"
        ),
    ),
    Planted(
        "a storage leaves its group before its partition list",
        Package.METADATA,
        "storage_maps.remove_storage_node(maps, storage), assignments_first=True",
        "storage_maps.remove_storage_node(maps, storage), assignments_first=False",
        "A crash leaves a storage with partitions and without a group.",
        nodes(
            "unit/metadata/test_metadata_interleaved.py::test_removal_of_a_storage_that_is_interrupted_leaves_it_in_its_group"
        ),
    ),
    Planted(
        "a deletion ignores the cluster's name",
        Package.METADATA,
        "if stored_name != name:\n",
        "if not stored_name:\n",
        "A mistyped root deletes another cluster.",
        nodes("unit/metadata/test_metadata_cluster.py::test_delete_with_another_name_is_refused"),
    ),
    Planted(
        "a creation overwrites the data of another creation",
        Package.METADATA,
        "if node is None or node.data is not None:\n",
        "if node is None:\n",
        "Two concurrent creations of a cluster both succeed, with two keys.",
        nodes(
            "unit/metadata/test_metadata_interleaved.py::test_cluster_creation_does_not_overwrite_data_of_a_concurrent_creation"
        ),
    ),
    Planted(
        "a node of an earlier session counts",
        Package.METADATA,
        "if m.descriptor.server_id == server_id and m.owner == session_id\n",
        "if m.descriptor.server_id == server_id\n",
        "A server disappears from the cluster when its earlier session expires.",
        nodes(
            "unit/metadata/test_metadata_membership_steps.py::test_server_whose_node_belongs_to_an_earlier_session_creates_its_own"
        ),
    ),
    Planted(
        "an assignment for former members is applied",
        Package.METADATA,
        "return self.assignment.cversion == self.cversion\n",
        "return self.assignment.cversion <= self.cversion\n",
        "A server keeps partitions that a server without a node owns.",
        nodes(
            "unit/metadata/test_metadata_membership_steps.py::test_server_with_the_smallest_id_writes_the_assignment"
        ),
    ),
    Planted(
        "a client uses an assignment with a server that left",
        Package.METADATA,
        "if not owned.keys() <= servers.keys():\n    return AwaitChange()\n",
        "",
        "A client drops the endpoint of partitions that are still served.",
        nodes(
            "unit/metadata/test_metadata_membership_steps.py::test_client_keeps_its_endpoints_while_the_membership_is_inconsistent"
        ),
    ),
    Planted(
        "a partition that moves keeps its generation",
        Package.METADATA,
        "generation + 1 if moved else generation)",
        "generation)",
        "Two servers own a partition in one generation.",
        nodes("unit/metadata/test_metadata_policy.py::test_every_partition_has_exactly_one_owner"),
    ),
    Planted(
        "a partition that stays gets a new generation",
        Package.METADATA,
        "partition, moved=False)",
        "partition, moved=True)",
        "Each change of the members interrupts all partitions.",
        nodes("unit/metadata/test_metadata_policy.py::test_every_partition_has_exactly_one_owner"),
    ),
    Planted(
        "the surplus is counted from the minimum",
        Package.METADATA,
        "if len(taken) > self._share:\n",
        "if len(taken) >= self._share:\n",
        "Partitions remain without an owner, as in Waltz 0.13.2.",
        nodes("unit/metadata/test_metadata_policy.py::test_every_partition_has_exactly_one_owner"),
    ),
    Planted(
        "a damaged assignment is dealt out",
        Package.METADATA,
        "if partition in pool or not 0 <= partition < old.num_partitions:\n",
        "if not 0 <= partition < old.num_partitions:\n",
        "A partition that is listed twice gets the older generation.",
        nodes(
            "unit/metadata/test_metadata_policy.py::test_assignment_from_a_damaged_one_is_refused"
        ),
    ),
    Planted(
        "a group loses its last copy of a partition",
        Package.METADATA,
        "if member != storage:\n",
        "if member:\n",
        "The only replica of a group is unassigned.",
        nodes(
            "unit/metadata/test_metadata_storage_maps.py::test_storage_map_change_that_breaks_a_rule_is_refused"
        ),
    ),
    Planted(
        "a change of replicas overwrites another one",
        Package.METADATA,
        "if present != change.expected:\n",
        "if not present:\n",
        "Replicas are changed that the caller has not seen.",
        nodes(
            "unit/metadata/test_metadata_storage_maps.py::test_change_replicas_that_breaks_a_rule_is_refused"
        ),
    ),
    Planted(
        "a count is not compared with the data's length",
        Package.METADATA,
        "if not 0 <= count * entry_bytes <= left:\n",
        "if count < 0:\n",
        "A damaged znode exhausts the memory.",
        nodes(
            "unit/metadata/test_metadata_formats.py::test_impossible_count_is_malformed_before_allocation"
        ),
    ),
)
