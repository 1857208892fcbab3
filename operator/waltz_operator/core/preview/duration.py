"""Estimate how long the changes of a cluster's shape take. Pure.

A *round* is the steps of one plan (`forecast.Round`). Replicas are copied and compared one after
the other. So the time is that of all bytes that are copied or compared, and a fixed time for each
round that changes the shape. Other rounds, for example those that start pods, are not estimated.
"""

from __future__ import annotations

import math
from collections.abc import Iterable

from waltz_operator.core.preview.forecast import Round

MEGABYTES_PER_SECOND = 50.0
"""The assumed rate in MB/s at which a replica is copied, and at which replicas are compared."""

_SECONDS_OF_A_ROUND = 2.0
"""How long a round takes in seconds, without copies and comparisons.

It has a pause, the observation, the steps, and the begin of the next store session.
"""


def estimate(rounds: Iterable[Round], megabytes_per_second: float) -> str | None:
    """Return the time that changes of the shape take, as a text; None if ``rounds`` have none."""
    changing = [each for each in rounds if each.change is not None]
    if not changing:
        return None
    sizes = [size for each in changing for size in each.transfers]
    rate = megabytes_per_second * 1e6
    seconds = _SECONDS_OF_A_ROUND * len(changing) + sum(size or 0 for size in sizes) / rate
    about = "at least" if None in sizes else "about"
    return f"{about} {_text(seconds)}, at {megabytes_per_second:g} MB/s for copies and comparisons"


def _text(seconds: float) -> str:
    """Return a time in minutes, rounded up, or from 90 minutes on in hours, as ``2.5 hours``."""
    minutes = math.ceil(seconds / 60)
    if minutes == 1:
        return "1 minute"
    return f"{minutes} minutes" if minutes < 90 else f"{minutes / 60:.1f} hours"
