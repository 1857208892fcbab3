"""Run the command ``waltz-server`` by `python -m waltz_server`."""

from waltz_server.main import main

if __name__ == "__main__":
    main()
