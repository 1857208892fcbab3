"""The command ``waltz``: verbs grouped by noun.

`app` puts it together; `cluster`, `storage`, `log` and `local` have the verbs of one noun each.
`ranges`, `rows` and `transactions` are pure: what people type, and what is shown to them.
`options`, `output` and `running` are what all verbs share.
"""

from waltz.cli.app import main

__all__ = ["main"]
