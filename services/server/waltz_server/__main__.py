"""Run the command ``waltz-server``, also by ``python -m waltz_server``."""

from waltz.runtime.extras import run_main


def main() -> None:
    """Run the server; if a package of the extra ``server`` is missing, print the remedy."""
    run_main("waltz_server.main", "waltz-server", "server")


if __name__ == "__main__":
    main()
