"""Run the command ``waltz-operator``, also by ``python -m waltz_operator``."""

from waltz.runtime.extras import run_main


def main() -> None:
    """Run it; if a package of the extra ``operator`` is missing, name the remedy."""
    run_main("waltz_operator.main", "waltz-operator", "operator")


if __name__ == "__main__":
    main()
