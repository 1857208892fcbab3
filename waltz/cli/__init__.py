"""The command ``waltz``: verbs grouped by noun.

`app` puts it together; `cluster`, `storage`, `log` and `local` have the verbs of one noun each.
`rows` and `transactions` are pure: what is shown to people. What they type is in `waltz.ranges`.
`options`, `output` and `running` are what all verbs share.
"""

from waltz.cli.app import main

__all__ = ["main"]
