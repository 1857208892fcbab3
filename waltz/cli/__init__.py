"""The command ``waltz``: verbs grouped by noun.

`app` puts it together. The verbs of a noun are in the module of its name: `local`, `cluster`,
`server`, `storage` (with `storage_partitions`, `storage_replicas`), `log` (with `log_export`,
`log_import`), `client`, `perf`, `disk`, `config`, `top`.

* What is shown is pure: `rows`, and `cluster_rows` and so on; `transactions`. `output` shows it
* All verbs share `options`, `cluster_options` (which cluster), `running`, `progress`
* They reach a cluster by `admin_access`, `client_access`, `load` (with `load_options`)
* Files of storages: `stopped_storage` and `dry_disk` read them, `segment_check` judges (pure)
* Exported logs: `archive` (pure), `archive_files`, `import_record`, `importing`
* What `client` checks: `validation` (pure)
"""

from waltz.cli.app import main

__all__ = ["main"]
