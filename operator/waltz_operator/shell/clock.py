"""The time of day, as statuses, events and the Lease write it. Touches the clock."""

from __future__ import annotations

import datetime


def utc_now() -> datetime.datetime:
    """Return the time of day in UTC."""
    return datetime.datetime.now(datetime.UTC)
