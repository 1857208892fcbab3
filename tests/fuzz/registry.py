"""List all fuzz targets that need no running process."""

from __future__ import annotations

from tests.fuzz.consumers import consumer_targets
from tests.fuzz.directories import Directories
from tests.fuzz.disk_formats import format_targets
from tests.fuzz.messages import message_targets
from tests.fuzz.settings import Settings
from tests.fuzz.spark_data import spark_targets
from tests.fuzz.target import Target
from tests.fuzz.znodes import znode_targets


def offline_targets() -> tuple[Target, ...]:
    """Return one of each."""
    return (
        *message_targets(),
        *format_targets(),
        Directories(),
        *znode_targets(),
        Settings(),
        *consumer_targets(),
        *spark_targets(),
    )
