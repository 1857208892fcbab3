"""The command ``waltz``: verbs grouped by noun.

The nouns are `local`, `cluster`, `server`, `storage`, `access`, `log`, `bench`, `disk`, `config`,
`debug` and `profile`; ``waltz top``, ``waltz console`` and ``waltz doctor`` are verbs without a
noun. Each noun, and each verb without a noun, has a folder. Its module `commands` has the verbs,
and `rows` most classes of their results. Other modules of a folder serve single verbs, such as
`export`. "Touches ..." in the docstring of a module names what the module uses outside of this
process.

The terms of Waltz, such as store session and high-water mark, are in spec/README.md.

* `app` assembles the command; `running` runs a verb and turns its errors into exit statuses;
  `waltz.runtime.one_line` prints each error of the command line as one line
* `options` and `cluster_options` declare options that several verbs have; `settings` reads the
  settings file of the tools of Waltz 0.13.2
* `rows` renders results as values and tables; `output` prints them; `template` fills the template
  that a user gives for the output; `fields` declares the fields of a result; `changes` has the
  result of a verb that changes something
* `progress` shows progress; `transactions` formats transactions; `deserializer` loads a serializer
  for their data
* `local_names` names the processes of a local cluster; `suggested` completes the commands that
  messages suggest
* `admin_access`, `client_access` open connections to a cluster
"""

from waltz.runtime.extras import run_main


def main() -> None:
    """Run the command ``waltz``; if a package of the extra ``cli`` is missing, name the remedy."""
    run_main("waltz.cli.app", program="waltz", extra="cli")


__all__ = ["main"]
