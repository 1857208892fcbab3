"""``python -m waltz.cli`` is the command ``waltz``."""

from waltz.cli import main

main()
