"""Pure. The differences between replicas that are known, and how much was compared."""

from __future__ import annotations

from collections.abc import Container, Mapping

from waltz.admin.core.comparison import ComparisonResult, Difference


class Differences:
    """The first difference of each partition whose replicas are known to differ.

    The counters are since the process started.
    """

    def __init__(self) -> None:
        self._known: dict[int, Difference] = {}
        self.comparisons = 0
        """How many partitions were compared as far as their replicas allow."""
        self.compared_bytes = 0
        """The bytes of all replicas that were compared."""

    @property
    def known(self) -> Mapping[int, Difference]:
        """The first known difference of each partition that has one."""
        return self._known

    def note(
        self, partition: int, result: ComparisonResult, assigned: Container[str]
    ) -> Difference | None:
        """Note the result of a comparison; return its difference if that was not known before.

        A known difference is forgotten when the storages that it names, without those to which the
        partition is not ``assigned`` any more, are the same beyond it.
        """
        self.comparisons += 1
        known = self._known.get(partition)
        if result.difference is not None:
            self._known[partition] = result.difference
            return result.difference if result.difference != known else None
        if known is not None and _is_settled(known, result, assigned):
            del self._known[partition]
        return None

    def keep(self, partitions: Container[int]) -> None:
        """Forget the differences of all other partitions."""
        self._known = {p: known for p, known in self._known.items() if p in partitions}


def _is_settled(known: Difference, result: ComparisonResult, assigned: Container[str]) -> bool:
    """Whether a comparison without a difference shows that ``known`` is none any more."""
    storages = {s for version in known.versions for s in version if s in assigned}
    return result.compared_until >= known.transaction_id and not any(
        s in result.problems or result.ends.get(s, known.transaction_id) < known.transaction_id
        for s in storages
    )
