"""The state of an airport: each aircraft's last transaction, up to a position in the log. Pure."""

from __future__ import annotations

from demo.flights import NO_AIRCRAFT


class Fleet:
    """The state of one partition as of the transaction ``position``."""

    def __init__(self) -> None:
        self.position = -1
        self._last: dict[int, int] = {}

    def apply(self, transaction_id: int, aircraft: int) -> None:
        """Take the next transaction of the log, which is about ``aircraft``."""
        assert transaction_id == self.position + 1, "a log has no gaps"
        self.position = transaction_id
        if aircraft != NO_AIRCRAFT:
            self._last[aircraft] = transaction_id

    def last(self, aircraft: int) -> int | None:
        """Return the last transaction about ``aircraft``, None if there is none."""
        return self._last.get(aircraft)
