"""The command ``waltz``: verbs grouped by noun.

`app` puts it together. The verbs of a noun are in the module of its name: `local`, `cluster`,
`server`, `storage` (with `storage_partitions`, `storage_replicas`), `log` (with `log_export`,
`log_import`), `client`, `perf`, `disk`, `config`, `top`.

* What is shown is pure: `rows`, and `cluster_rows` and so on; `transactions`. `output` shows it
* All verbs share `options`, `cluster_options` (which cluster), `running`, `progress`
* They reach a cluster by `admin_access`, `client_access`, `load` (with `load_options`)
* Files of stopped storages: `disk`, which shows what `waltz_storage.inspect` reads
* Exported logs: `archive` (pure), `archive_files`, `import_record`, `importing`
* What `client` checks: `validation` (pure)
"""

from __future__ import annotations

import sys

_LIBRARIES = ("typer", "rich", "click")
"""What the extra ``cli`` of the distribution installs."""


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
