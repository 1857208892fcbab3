"""List all planted bugs."""

from __future__ import annotations

from tests.mutants.planted_access import ACCESS_BUGS
from tests.mutants.planted_admin import ADMIN_BUGS
from tests.mutants.planted_adoption import ADOPTION_BUGS
from tests.mutants.planted_answers import ANSWER_BUGS
from tests.mutants.planted_batches import BATCH_BUGS
from tests.mutants.planted_clients import CLIENT_BUGS
from tests.mutants.planted_healing import HEALING_BUGS
from tests.mutants.planted_leaks import LEAK_BUGS
from tests.mutants.planted_lifecycles import LIFECYCLE_BUGS
from tests.mutants.planted_metadata import METADATA_BUGS
from tests.mutants.planted_net import NET_BUGS
from tests.mutants.planted_operator import OPERATOR_BUGS
from tests.mutants.planted_outer import OUTER_BUGS
from tests.mutants.planted_outside import OUTSIDE_BUGS
from tests.mutants.planted_outside_access import OUTSIDE_ACCESS_BUGS
from tests.mutants.planted_ranges import RANGE_BUGS, STORED_BUGS
from tests.mutants.planted_reads import READ_BUGS
from tests.mutants.planted_repairs import REPAIR_BUGS
from tests.mutants.planted_rolls import ROLL_BUGS
from tests.mutants.planted_rotation import ROTATION_BUGS
from tests.mutants.planted_sessions import SESSION_BUGS
from tests.mutants.planted_shapes import SHAPE_BUGS
from tests.mutants.planted_shells import SHELL_BUGS
from tests.mutants.planted_spark import SPARK_BUGS
from tests.mutants.planted_storage import STORAGE_BUGS
from tests.mutants.planted_testing import TESTING_BUGS
from tests.mutants.planted_transport import TRANSPORT_BUGS
from tests.mutants.planted_updates import UPDATE_BUGS
from tests.mutants.planted_users import USER_BUGS
from tests.mutants.planted_waits import WAIT_BUGS
from tests.mutants.planted_wal import WAL_BUGS

PLANTED = (
    *STORAGE_BUGS,
    *WAL_BUGS,
    *SESSION_BUGS,
    *CLIENT_BUGS,
    *ANSWER_BUGS,
    *BATCH_BUGS,
    *RANGE_BUGS,
    *STORED_BUGS,
    *READ_BUGS,
    *REPAIR_BUGS,
    *METADATA_BUGS,
    *TRANSPORT_BUGS,
    *OUTSIDE_BUGS,
    *NET_BUGS,
    *LEAK_BUGS,
    *ADMIN_BUGS,
    *SHELL_BUGS,
    *LIFECYCLE_BUGS,
    *ACCESS_BUGS,
    *OPERATOR_BUGS,
    *HEALING_BUGS,
    *ROLL_BUGS,
    *ROTATION_BUGS,
    *SHAPE_BUGS,
    *ADOPTION_BUGS,
    *OUTSIDE_ACCESS_BUGS,
    *SPARK_BUGS,
    *TESTING_BUGS,
    *UPDATE_BUGS,
    *USER_BUGS,
    *WAIT_BUGS,
    *OUTER_BUGS,
)
