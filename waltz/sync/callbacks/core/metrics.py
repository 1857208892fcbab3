"""The metrics of callbacks, in addition to those of the client. Pure."""

from __future__ import annotations

from waltz.client.core.metrics import partition_group
from waltz.runtime.metrics import Registry, Timer


class CallbackMetrics:
    """One partition: the time from the submission of a context to its callbacks."""

    def __init__(self, registry: Registry, partition: int) -> None:
        self.active = False
        self.completion = Timer()
        self.application = Timer()
        group = partition_group(partition)
        registry.gauge(group, "is-partition-active", lambda: self.active)
        registry.timer(group, "on-completion-latency", self.completion)
        registry.timer(group, "on-application-latency", self.application)
