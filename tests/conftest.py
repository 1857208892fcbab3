"""The profile of Hypothesis for all tests. Changes the settings of this process."""

from __future__ import annotations

from hypothesis import HealthCheck, settings

# A deadline and the checks of speed fail on a busy machine. The examples of a test follow from its
# name and its code: a failure can be repeated, and a run does not depend on earlier runs.
settings.register_profile(
    "waltz",
    deadline=None,
    derandomize=True,
    database=None,
    suppress_health_check=[
        HealthCheck.too_slow,
        HealthCheck.filter_too_much,
        HealthCheck.data_too_large,
        HealthCheck.large_base_example,
    ],
)
settings.load_profile("waltz")
