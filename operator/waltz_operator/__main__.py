"""``python -m waltz_operator`` is ``waltz-operator``."""

from waltz_operator.main import main

if __name__ == "__main__":
    main()
