"""All planted bugs."""

from __future__ import annotations

from tests.mutants.planted_batches import BATCH_BUGS
from tests.mutants.planted_clients import CLIENT_BUGS
from tests.mutants.planted_ranges import RANGE_BUGS
from tests.mutants.planted_sessions import SESSION_BUGS
from tests.mutants.planted_storage import STORAGE_BUGS

PLANTED = (*STORAGE_BUGS, *SESSION_BUGS, *CLIENT_BUGS, *BATCH_BUGS, *RANGE_BUGS)
