"""Run the operator by ``python -m waltz_operator``, as the command ``waltz-operator`` does."""

from waltz_operator.main import main

if __name__ == "__main__":
    main()
