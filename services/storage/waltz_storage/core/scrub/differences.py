"""Pure. The known differences between replicas, and how much was compared.

`shell.peer_comparison` notes the results of its comparisons here, and the metrics read them.
"""

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

        ``assigned`` are the storages that have the partition now. If a difference of the partition
        is known, only those of its storages count that still have the partition. The result
        replaces the known difference in two cases:

        * The known difference is settled: its transaction is now the same on all these storages.
        * The result has a difference that names all these storages, and perhaps others.

        A difference that leaves one of them out replaces nothing. That storage may be the one with
        the wrong transaction, and no report would name it any more.
        """
        self.comparisons += 1
        known, new = self._known.get(partition), result.difference
        if known is not None:
            storages = {s for s in _named(known) if s in assigned}
            new_names_all = new is not None and _named(new) >= storages
            if not new_names_all and not _is_settled(known, storages, result):
                return None
        if new is None:
            self._known.pop(partition, None)
            return None
        self._known[partition] = new
        if new == known:
            return None
        self.found += 1
        return new

    def keep(self, partitions: Container[int]) -> None:
        """Forget the differences of all other partitions."""
        self._known = {p: known for p, known in self._known.items() if p in partitions}


def _is_settled(known: Difference, storages: Iterable[str], result: ComparisonResult) -> bool:
    """Whether a comparison shows that the transaction of ``known`` is the same on ``storages``.

    All of them must have been compared up to this transaction. ``compared_until`` of the result is
    the id up to which the compared replicas are the same.
    """
    if result.compared_until < known.transaction_id:
        return False
    ends_before = {s for s, last_id in result.ends.items() if last_id < known.transaction_id}
    return not any(s in result.problems or s in ends_before for s in storages)


def _named(difference: Difference) -> frozenset[str]:
    """Return the storages that a difference names."""
    return frozenset().union(*difference.versions)
