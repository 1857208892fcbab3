"""Generate the reference pages of commands, settings, metrics and limits. Writes into ``docs``.

``python -m docs.reference`` writes the pages. A test compares the files with the generated pages.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from enum import Enum
from pathlib import Path
from typing import Any

import typer

from docs.limits_reference import limits_page
from docs.metrics_reference import metrics_page
from waltz.cli.app import app
from waltz.cli.cluster_options import named_cluster
from waltz.cli.fields import ResultForm, fields_of, printed_by
from waltz.cli.options import example_lines
from waltz.cli.settings import CliSettings
from waltz.client.settings import ClientSettings
from waltz.runtime.configuration import Settings, keys
from waltz.runtime.core.setting_names import environment_variable
from waltz_server.shell.config import ServerConfig
from waltz_storage.shell.config import StorageConfig

HERE = Path(__file__).parent
"""The folder ``docs``."""

_MADE = "<!-- Made by `python -m docs.reference`: change the code, not this page. -->"
"""The comment at the beginning of each page."""

_ABOUT_COMMANDS = """\
`pip install 'waltz-log[cli]'` installs the command `waltz`; `waltz-log[local]` adds what `waltz \
local` starts: servers, storages and ZooKeeper.

Ranges of partitions are written like `0-6,7,10-16`. Results are printed as tables, as JSON, as \
YAML, or as [lines of a template](#templates) (`--output`). The exit status is 0 after success, \
1 after an error, with one sentence on standard error, and 2 after an invalid command line.

The settings of `waltz-server` and `waltz-storage` are on [another page](settings.md). Shell \
completion is installed by `waltz --install-completion`."""

_ABOUT_RESULTS = """\
`-o json` prints a result with the fields that are listed at each verb; YAML has the same fields. \
The name of a nested field follows that of its list or object, with a dot between them, as in \
templates; `NAME` stands for any name. The names and the kinds of fields do not change within a \
major version; fields may be added. The order of fields has no meaning.

A verb that changes something says what it did: `action` is the verb, `object` what it changed, \
`partitions` those of the command line, `steps` what was done, in words. `outcome` is `changed`, \
`unchanged` if nothing had to be done, `planned` in a dry run, or `failed` if a part failed. \
Progress, questions and errors go to standard error: standard output has the result alone."""

_ABOUT_TEMPLATES = """\
`-o template='TEXT'` prints TEXT once for each row of a result, for scripts that need a few \
values. Fields are the keys of the JSON (`-o json`), in braces; dots lead to nested fields:

```text
$ waltz cluster show -o template='{partitions.partition} {partitions.server}'
0 2
1 0
$ waltz cluster show -o template='{name} {partitions.partition} {partitions.replicas.storage}'
orders 0 storage-0:55280
orders 0 storage-1:55280
orders 1 storage-0:55280
orders 1 storage-1:55280
```

- The rows are the items of a list. A result that is not a list is one row. A field inside a list \
gives one row for each item of that list; a template has fields of one list, and of the lists \
inside it.
- A text is printed as it is, any other value as JSON: `true`, `null`, `[0, 1]`. `{{` and `}}` \
print braces. In bash, `$'{id}\\t{server}'` separates fields by a tab.
- A malformed template is an invalid command line, with exit status 2. An unknown field is found \
when the result is there: the command has done its work, prints no line, names the fields of its \
result, and exits with 1; only `waltz log append` finds it before the append. A \
result without rows prints nothing."""

_ABOUT_SETTINGS = """\
Settings come from a YAML file and from environment variables, which take precedence. A variable \
is `WALTZ_` and the setting's name in capitals, with an underscore for every dot and before \
every capital letter: `server.bind.host` is `WALTZ_SERVER_BIND_HOST`. In the file `a.b: 1` and \
`a: {b: 1}` mean the same.

Four variables are those of the command line and the client library, too. They override the \
file, and the variables of the settings themselves override them:

| Variable | Sets |
|---|---|
| `WALTZ_ZOOKEEPER` | `zookeeper.connectString` |
| `WALTZ_ROOT` | `cluster.root` |
| `WALTZ_ACCESS` | `client.access` |
| `WALTZ_TLS` | the group `server.tls`, `storage.tls` or `client.tls`: `on` and `off` set only \
`enabled`. Any other value is the path of a YAML file with the keys of the group, such as \
`certificate`, `key` and `ca`; the file also sets `enabled`, by default to `true`. Settings that \
the variable does not set keep their values. |

`WALTZ_CLUSTER` and `WALTZ_PROFILE` are for the command line and the client library alone. A \
server or storage that finds one of them in its environment ignores it, and logs a warning at its \
start.

An unknown setting is an error that suggests the most similar setting. `waltz config explain \
server server.yml` shows which value each setting has, and the origin of the value.

Settings of Waltz 0.13.2 that have no effect here are accepted with a warning; \
[compatibility](compatibility.md#settings) describes them."""

_PROCESSES: tuple[tuple[str, type[Settings]], ...] = (
    ("waltz-server FILE", ServerConfig),
    ("waltz-storage FILE", StorageConfig),
    ("waltz.connect_as_configured(FILE)", ClientSettings),
    ("waltz … --cluster FILE.yml", CliSettings),
)
"""What reads settings, as the page shows it, and the model of these settings."""


def commands_page() -> str:
    """Return the page of all verbs of ``waltz``, with their arguments and options."""
    lines = ["# Commands", "", _MADE, "", _ABOUT_COMMANDS, ""]
    lines += ["## Which cluster", "", *_paragraphs(_which_cluster())]
    lines += ["## Results", "", _ABOUT_RESULTS, "", "## Templates", "", _ABOUT_TEMPLATES, ""]
    for noun, group in _listed(typer.main.get_command(app)):
        if hasattr(group, "commands"):
            lines += [f"## waltz {noun}", "", *_paragraphs([group.help or ""])]
            verbs = list(_verbs(group))
            lines += ["| | |", "|---|---|"]
            for verb, command in verbs:
                link = f"[`{verb}`](#waltz-{noun}-{verb.replace(' ', '-')})"
                lines.append(f"| {link} | {_summary(command)} |")
            lines.append("")
            for verb, command in verbs:
                lines += _command(f"waltz {noun} {verb}", command, "###")
        else:
            lines += _command(f"waltz {noun}", group, "##")
    return "\n".join(lines).rstrip() + "\n"


def settings_page() -> str:
    """Return the page of all settings of all processes."""
    lines = ["# Settings", "", _MADE, "", _ABOUT_SETTINGS, ""]
    for read_by, model in _PROCESSES:
        lines += [f"## {model.process.capitalize()}", "", f"Read by `{read_by}`.", ""]
        lines += ["| Setting | Type | Default | Meaning |", "|---|---|---|---|"]
        for key in keys(model):
            default = "**must be set**" if key.required else _default(key.default)
            lines.append(f"| `{key.name}` | {key.kind} | {default} | {_cell(key.meaning)} |")
        lines += ["", *_without_effect(model)]
    example = keys(ServerConfig)[0].name
    lines += [f"For instance, `{example}` is `{environment_variable(example)}` in the environment."]
    return "\n".join(lines).rstrip() + "\n"


_RESULT_FORMS: Mapping[ResultForm, str] = {
    ResultForm.OBJECT: "one object",
    ResultForm.LIST: "a list of objects",
    ResultForm.LINES: "one object in each line",
}

_VALUES: Mapping[Any, str] = {int: "N", float: "NUMBER", Path: "PATH"}
"""The placeholder of an option's value, by the type of the value; for all others it is TEXT."""

PAGES: Mapping[str, Callable[[], str]] = {
    "commands.md": commands_page,
    "settings.md": settings_page,
    "metrics.md": lambda: metrics_page(_MADE),
    "limits.md": lambda: limits_page(_MADE),
}
"""The function that returns the content of each page, by file name."""


def _without_effect(model: type[Settings]) -> Iterator[str]:
    """Yield the table of the settings of 0.13.2 that have no effect here; nothing without any."""
    if not model.without_effect:
        return
    yield "| Of 0.13.2, without effect here | Because |"
    yield "|---|---|"
    for name, why in model.without_effect.items():
        shown = f"{name}*" if name.endswith(".") else name
        yield f"| `{shown}` | {_cell(why)} |"
    yield ""


def _listed(group: Any) -> Iterable[tuple[str, Any]]:
    """Return the commands of a group in the order of its ``--help``."""
    return ((name, command) for name, command in group.commands.items() if not command.hidden)


def _verbs(group: Any, before: str = "") -> Iterator[tuple[str, Any]]:
    """Yield the names and commands of a noun's verbs.

    The verb of a group inside the noun has two words: the group's name, which is in ``before``, and
    its own.
    """
    for name, command in _listed(group):
        if hasattr(command, "commands"):
            yield from _verbs(command, f"{before}{name} ")
        else:
            yield f"{before}{name}", command


def _fields(command: Any) -> Iterator[str]:
    """Yield the table of the fields that a verb prints as JSON."""
    printed = printed_by(command)
    if printed is None:
        return
    yield from (f"With `-o json` the result is {_RESULT_FORMS[printed.form]}:", "")
    yield from ("| Field | Kind |", "|---|---|")
    yield from (f"| `{each.name}` | {each.kind} |" for each in fields_of(printed.row))
    yield ""


def _command(name: str, command: Any, level: str) -> Iterator[str]:
    """Yield the section of a command; ``level`` begins its heading, such as ``###``."""
    shown = [each for each in command.params if not getattr(each, "hidden", False)]
    arguments = [each for each in shown if each.param_type_name == "argument"]
    options = [each for each in shown if each.param_type_name == "option" and each.name != "help"]
    # The options of every verb about a cluster are in a section of their own.
    cluster_options = {option.name for option in _cluster_options()}
    has_cluster_options = cluster_options <= {option.name for option in options}
    if has_cluster_options:
        options = [option for option in options if option.name not in cluster_options]
    yield from (f"{level} {name}", "")
    yield from _paragraphs([command.help or ""])
    usage = " ".join([name, *(_placeholder(argument) for argument in arguments)])
    if options or has_cluster_options:
        usage += " [OPTIONS]"
    yield from ("```text", usage, "```", "")
    if arguments or options:
        yield from ("| | |", "|---|---|")
        yield from (f"| `{_placeholder(each)}` | {_meaning(each)} |" for each in arguments)
        yield from (f"| {_flags(each)} | {_meaning(each)} |" for each in options)
        yield ""
    if has_cluster_options:
        yield from ("And the options that say [which cluster](#which-cluster).", "")
    examples = [line for line in example_lines(command.epilog) if line.startswith("waltz ")]
    if examples:
        yield from ("```text", *examples, "```", "")
    yield from _fields(command)


def _cluster_options() -> list[Any]:
    """Return the options that every verb about a cluster has."""
    # A program with one command that has only these options: typer decodes their declarations.
    program = typer.Typer(add_completion=False)
    program.command()(named_cluster)
    return [each for each in typer.main.get_command(program).params if each.name != "help"]


def _which_cluster() -> Iterator[str]:
    """Yield the text and the table about the options that every verb about a cluster has."""
    yield (
        "Verbs about a running cluster have these options; each may be a variable instead. An "
        "option overrides its variable. With `--cluster` or `--profile`, the variables of the "
        "other options have no effect, so that nothing of another cluster is used. With "
        "`--zookeeper`, `WALTZ_CLUSTER` and `WALTZ_PROFILE` have no effect. `--cluster` and "
        "`--profile` together are refused, and so are `WALTZ_CLUSTER` and `WALTZ_PROFILE` "
        "together. The other variables override the file or profile that `WALTZ_CLUSTER` or "
        "`WALTZ_PROFILE` names."
    )
    yield ""
    yield "| Option | Variable | Meaning |"
    yield "|---|---|---|"
    for option in _cluster_options():
        yield f"| {_flags(option)} | `{option.envvar}` | {_cell(option.help)} |"


def _placeholder(argument: Any) -> str:
    """Return an argument as the usage shows it: with ``…`` if it repeats, in ``[]`` if optional."""
    name = str(argument.metavar or argument.name.upper()).removesuffix("...")
    for opening, closing in ("[]", "{}"):
        if name.startswith(opening):
            name = name.removeprefix(opening).removesuffix(closing)
    name += "…" if argument.nargs == -1 else ""
    return name if argument.required else f"[{name}]"


def _flags(option: Any) -> str:
    """Return the names of an option, the long ones first, and the placeholder of its value."""
    names = sorted([*option.opts, *option.secondary_opts], key=lambda name: name[:2] != "--")
    shown = ", ".join(f"`{name}`" for name in names)
    return shown if option.is_flag else f"{shown} `{_value(option)}`"


def _value(option: Any) -> str:
    """Return the placeholder of an option's value, without a bar, which would end a table cell."""
    if option.metavar:
        return str(option.metavar).replace("|", "/")
    annotation = option.type_descriptor.annotation
    if isinstance(annotation, type) and issubclass(annotation, Enum):
        return "/".join(str(choice.value) for choice in annotation)
    return _VALUES.get(annotation, "TEXT")


def _meaning(parameter: Any) -> str:
    """Return the help of an argument or option, for an option with its default."""
    meaning = _cell(parameter.help or "")
    default = parameter.default
    if parameter.param_type_name == "option" and parameter.required:
        return f"{meaning} Must be given."
    is_shown = isinstance(default, str | int | float | Path) and not isinstance(default, bool)
    if is_shown and parameter.param_type_name == "option":
        return f"{meaning} Default: {_default(getattr(default, 'value', default))}."
    return meaning


def _default(value: object) -> str:
    """Return a default as a table shows it; a dash for None."""
    if value is None:
        return "–"
    return f"`{str(value).lower()}`" if isinstance(value, bool) else f"`{value}`"


def _summary(command: Any) -> str:
    """Return the first paragraph of a command's help."""
    return _cell((command.help or "").split("\n\n")[0])


def _cell(text: str) -> str:
    """Return ``text`` in the form for one cell of a table."""
    return " ".join(text.replace("``", "`").replace("|", "\\|").replace("*", "\\*").split())


def _paragraphs(lines: Iterable[str]) -> Iterator[str]:
    """Yield ``lines`` as one text in Markdown, followed by an empty line."""
    yield "\n".join(lines).replace("``", "`").strip()
    yield ""


def main() -> None:
    """Write every page."""
    for name, make in PAGES.items():
        (HERE / name).write_text(make())


if __name__ == "__main__":
    main()
