"""The command ``waltz``: verbs grouped by noun. The noun folders hold presentation only.

Each folder has the verbs of one noun in `commands`, and their results, as they are shown, in
`rows`: `cluster`, `server`, `storage`, `log`, `client`, `perf`, `disk`, `config`, `local`, `top`.

* `app` assembles the command; `running` runs a verb and turns its errors into exit statuses
* `options`, `cluster_options` (which cluster): the options of several verbs; `settings`: the file
  of 0.13.2's tools
* `rows` renders results as values and tables; `output` prints them; `progress` shows progress;
  `transactions` formats transactions; `deserializer` loads a serializer for them
* `admin_access`, `client_access`: connections to a cluster
"""

from __future__ import annotations

import sys

_LIBRARIES = ("typer", "rich", "click")
"""The packages that the extra ``cli`` of the distribution installs."""


def main() -> None:
    """Run the command ``waltz``; without the extra ``cli``, say in one line how to get it."""
    try:
        from waltz.cli.app import main as run
    except ModuleNotFoundError as missing:
        if missing.name not in _LIBRARIES:
            raise
        sys.exit(f"waltz: the command needs {missing.name}: pip install 'waltz-log[cli]'")
    run()


__all__ = ["main"]
