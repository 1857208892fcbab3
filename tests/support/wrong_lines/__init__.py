"""Wrong command lines of each group of commands, and a part of the one line that answers each.

The files that the lines name are those of `tests.support.wrong_commands.write_files`.
"""

from __future__ import annotations

from tests.support.wrong_lines.cluster import CLUSTER_LINES
from tests.support.wrong_lines.files import FILE_LINES
from tests.support.wrong_lines.records import RECORD_LINES

LINES = {**FILE_LINES, **CLUSTER_LINES, **RECORD_LINES}
"""By the name of the group: the command lines without ``waltz`` and the group's name."""
WITH_CLUSTER = CLUSTER_LINES.keys() | RECORD_LINES.keys()
"""The groups whose lines find the cluster of `tests.support.wrong_commands.use_cluster`."""
