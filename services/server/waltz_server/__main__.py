"""`python -m waltz_server` is the command ``waltz-server``."""

from waltz_server.main import main

if __name__ == "__main__":
    main()
