"""A parser of command lines that prints an error as one line. Touches the standard streams.

The programs of the operator use it: they are to be small, and typer takes time and memory.
"""

from __future__ import annotations

import argparse
from typing import NoReturn


class OneLineParser(argparse.ArgumentParser):
    """Prints an error as one line that names the help, instead of the usage and the error."""

    def error(self, message: str) -> NoReturn:
        """End the program with status 2."""
        self.exit(2, f"{self.prog}: {message}; see: {self.prog} --help\n")
