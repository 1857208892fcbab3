"""Read the time of day for statuses, events and the Lease. Touches the clock."""

from __future__ import annotations

import datetime


def utc_now() -> datetime.datetime:
    """Return the current time in UTC."""
    return datetime.datetime.now(datetime.UTC)
