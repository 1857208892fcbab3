"""The noun ``access`` of the command ``waltz``."""
