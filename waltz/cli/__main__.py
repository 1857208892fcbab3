"""``python -m waltz.cli`` is the command ``waltz``."""

from waltz.cli.app import main

main()
