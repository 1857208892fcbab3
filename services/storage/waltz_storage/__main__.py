"""Run the command ``waltz-storage``, also by ``python -m waltz_storage``."""

from waltz.runtime.extras import run_main


def main() -> None:
    """Run the storage; if a package of the extra ``storage`` is missing, print the remedy."""
    run_main("waltz_storage.main", "waltz-storage", "storage")


if __name__ == "__main__":
    main()
