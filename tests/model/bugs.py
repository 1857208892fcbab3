"""The bugs that can be switched on in the model. Pure.

A model that cannot find a wrong rule proves nothing: `test_model_bugs` switches on each of these,
and the search must find a short trace that breaks an invariant.
"""

from __future__ import annotations

from enum import Enum


class Bug(Enum):
    """A mistake in the rule, and what it does."""

    COUNTS_LOST_LOG = "a replica that lost its log and kept its control file is opened and counted"
    COUNTS_TORN_DAMAGE = "a damaged record below the flushed mark is cut off as a torn tail"
    COUNTS_EMPTIED = "a replica whose disk was emptied votes as if it were intact"
    MINORITY_MARK = "the mark is resolved without the absent replicas that could raise it"
    CUTS_COMMITTED = "lost metadata are taken for those of a new partition, and logs are cut"
    SKIPS_CAS = "the metadata are written without comparing their version"
    NO_FENCE = "a storage takes requests of sessions that were replaced"
    NO_INTERIM_MARK = (
        "copies to a replica that left earlier count before the session is on its disk"
    )
    KEEPS_TAIL = "a replica that left a session earlier keeps records above its closing mark"
    OPENS_OLDER_TAIL = "a log restored from before a truncation is opened with the removed records"
    NEW_VOTES = "a new replica supports marks"
