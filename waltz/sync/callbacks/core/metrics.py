"""The metrics of callbacks, in addition to those of the client. Pure."""

from __future__ import annotations

from waltz.client.core.metrics import partition_group
from waltz.runtime.core.json_metrics import JsonKind, JsonMetrics
from waltz.runtime.core.timer import Timer


class CallbackMetrics:
    """The metrics of one partition.

    ``active`` is true while the callbacks of the partition are called. ``completion`` and
    ``application`` have the seconds from the submission of a context to its callbacks
    ``on_completion`` and ``on_application``.
    """

    def __init__(self, json: JsonMetrics, partition: int) -> None:
        self.active = False
        self.completion = Timer()
        self.application = Timer()
        group = partition_group(partition)
        json.add(group, "is-partition-active", JsonKind.GAUGE, lambda: self.active)
        json.add(group, "on-completion-latency", JsonKind.TIMER, lambda: self.completion)
        json.add(group, "on-application-latency", JsonKind.TIMER, lambda: self.application)
