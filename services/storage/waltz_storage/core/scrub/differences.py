"""Pure. The known differences between replicas, and how much was compared."""

from __future__ import annotations

from collections.abc import Container, Iterable, Mapping

from waltz.admin.core.comparison import ComparisonResult, Difference


class Differences:
    """The first difference of each partition whose replicas are known to differ.

    The counters are since the process started.
    """

    def __init__(self) -> None:
        self._known: dict[int, Difference] = {}
        self.found = 0
        """How many differences were found that were not known before."""
        self.comparisons = 0
        """How many comparisons of a partition were made."""
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

        ``assigned`` are the storages that have the partition now. Those of them that the known
        difference names decide whether the result replaces it, which happens in two cases:

        * The known difference is settled: its transaction is now the same on these storages.
        * The result has a difference that names these storages, too. A difference of fewer storages
          replaces nothing: the storage that is missing may be the wrong one.
        """
        self.comparisons += 1
        known, found = self._known.get(partition), result.difference
        if known is not None:
            storages = {s for s in _named(known) if s in assigned}
            found_replaces_known = found is not None and _named(found) >= storages
            if not found_replaces_known and not _is_settled(known, storages, result):
                return None
        if found is None:
            self._known.pop(partition, None)
            return None
        self._known[partition] = found
        if found == known:
            return None
        self.found += 1
        return found

    def keep(self, partitions: Container[int]) -> None:
        """Forget the differences of all other partitions."""
        self._known = {p: known for p, known in self._known.items() if p in partitions}


def _is_settled(known: Difference, storages: Iterable[str], result: ComparisonResult) -> bool:
    """Whether a comparison shows that the transaction of ``known`` is the same on ``storages``."""
    return result.compared_until >= known.transaction_id and not any(
        s in result.problems or result.ends.get(s, known.transaction_id) < known.transaction_id
        for s in storages
    )


def _named(difference: Difference) -> frozenset[str]:
    """Return the storages that a difference names."""
    return frozenset().union(*difference.versions)
