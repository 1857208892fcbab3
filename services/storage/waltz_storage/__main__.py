"""Run the command ``waltz-storage``, also by ``python -m waltz_storage``."""

from waltz.runtime.extras import run_main


def main() -> None:
    """Run it; if a package of the extra ``storage`` is missing, name the remedy."""
    run_main("waltz_storage.main", "waltz-storage", "storage")


if __name__ == "__main__":
    main()
