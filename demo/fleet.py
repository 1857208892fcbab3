"""Keep the last transaction of each aircraft, up to a position in the log. No input or output."""

from __future__ import annotations

from demo.flights import NO_AIRCRAFT


class Fleet:
    """The state of one partition after the transaction ``position``, -1 before the first one."""

    def __init__(self) -> None:
        self.position = -1
        self._last: dict[int, int] = {}
        """The last transaction of each aircraft."""

    def apply(self, transaction_id: int, aircraft: int) -> None:
        """Apply the next transaction of the partition, which is a flight of ``aircraft``."""
        assert transaction_id == self.position + 1, "a log has no gaps"
        self.position = transaction_id
        if aircraft != NO_AIRCRAFT:
            self._last[aircraft] = transaction_id

    def last(self, aircraft: int) -> int | None:
        """Return the id of the last transaction of ``aircraft``, None if there is none."""
        return self._last.get(aircraft)
