"""Bugs of `waltz.testing`, hunted by its own tests: applications' tests rely on its faults."""

from __future__ import annotations

from tests.mutants.planting import Package, Planted, nodes

TESTING_BUGS = (
    Planted(
        "a file in a lost directory survives",
        Package.TESTING,
        "if _directory_of(path) in directories:\n",
        "if True:\n",
        "A crash in a test keeps what a real one loses.",
        nodes(
            "unit/testing/test_testing_disk.py::test_crash_loses_files_of_a_directory_whose_name_is_not_durable"
        ),
    ),
    Planted(
        "a lock outlives its file",
        Package.TESTING,
        "if self._disk.locks.get(id(self._inode)) is self:\n"
        "    del self._disk.locks[id(self._inode)]\n",
        "",
        "A storage in a test cannot start again.",
        nodes(
            "unit/testing/test_testing_disk.py::test_lock_of_a_file_ends_when_the_file_is_closed"
        ),
    ),
    Planted(
        "an expired session keeps its nodes",
        Package.TESTING,
        "self.end_session(session_id)\nclient._call_and_remove_all_watches()\n",
        "client._call_and_remove_all_watches()\n",
        "A test of a lost session shows no failover.",
        nodes(
            "unit/testing/test_testing_zookeeper.py::test_expired_session_loses_its_nodes_and_learns_of_it"
        ),
    ),
)
