"""``waltz profile``: name clusters, so that commands and clients can use the names.

Touches the file in which the user's profiles are saved, and reads the TLS files that ``--tls``
names.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import typer

from waltz.cli.changes import Change, change, show_change
from waltz.cli.cluster_options import (
    AccessOption,
    Root,
    Tls,
    ZooKeeper,
    access_from_option,
    tls_from_option,
)
from waltz.cli.fields import ResultForm, prints
from waltz.cli.options import examples
from waltz.cli.output import Format, Output, show
from waltz.cli.rows import listing
from waltz.cli.running import Failed, exit_on_expected_error
from waltz.metadata.core.connect_string import connect_string_problem
from waltz.metadata.core.paths import Paths
from waltz.runtime.core.setting_names import DEFAULT_ROOT
from waltz.runtime.profiles import (
    AS_DECLARED,
    Profile,
    profiles_file,
    read_profiles,
    write_profiles,
)

app = typer.Typer(
    no_args_is_help=True,
    help="Name clusters, and choose the one that commands and clients use.",
)

Name = Annotated[str, typer.Argument(metavar="NAME", help="The name of the profile.")]


@dataclass(frozen=True, slots=True)
class ProfileRow:
    """One profile; ``used`` is whether it is the profile in use.

    ``tls`` is the text that `_tls_text` returns. ``access`` says at which addresses processes are
    dialed: ``inside`` or ``outside``.
    """

    name: str
    used: bool
    zookeeper: str
    root: str
    tls: str
    access: str


@app.command(
    "add",
    epilog=examples(
        "waltz profile add staging --zookeeper zk-1:2181 --root /waltz/orders",
        "waltz profile add production -z zk-1:2181,zk-2:2181 -r /waltz/orders --tls tls.yml",
        "waltz profile add from-home -z zk.example:2181 --access outside",
    ),
)
@prints(Change)
def add_command(
    name: Name,
    zookeeper: ZooKeeper = None,
    root: Root = None,
    tls: Tls = None,
    access: AccessOption = None,
    output: Output = Format.TABLE,
) -> None:
    """Add a profile, or replace the one of that name; the first one is in use at once."""
    if zookeeper is None:
        raise typer.BadParameter("the profile needs the addresses of ZooKeeper: --zookeeper")
    if (problem := connect_string_problem(zookeeper)) is not None:
        raise typer.BadParameter(problem)
    chosen_root = DEFAULT_ROOT if root is None else root
    with exit_on_expected_error():
        _check_name(name)
        Paths(chosen_root)  # Raises BadRoot if the root cannot be used.
        chosen_access = "inside" if access is None else access_from_option(access)
        profile = Profile(zookeeper, chosen_root, _tls_text(tls), chosen_access)
        before = read_profiles(profiles_file())
        after = before.add(name, profile)
        write_profiles(profiles_file(), after if before.profiles else after.use(name))
    steps = [f"save profile {name} in {profiles_file()}"]
    if not before.profiles:
        steps.append(f"use profile {name}")
    sentence = f"profile {name} is saved in {profiles_file()}"
    if not before.profiles:
        sentence += " and is in use"
    show_change(output, change("profile add", name, steps), sentence)


@app.command("use", epilog=examples("waltz profile use staging", "waltz profile use --none"))
@prints(Change)
def use_command(
    name: Annotated[
        str | None, typer.Argument(metavar="[NAME]", help="The name of the profile.")
    ] = None,
    none: Annotated[bool, typer.Option("--none", help="Use no profile.")] = False,
    output: Output = Format.TABLE,
) -> None:
    """Choose the profile to use where no option, variable or local cluster names a cluster."""
    if none == (name is not None):  # Both or neither.
        raise typer.BadParameter("give either the name of a profile, or --none")
    with exit_on_expected_error():
        write_profiles(profiles_file(), read_profiles(profiles_file()).use(name))
    steps = ["use no profile" if name is None else f"use profile {name}"]
    sentence = "no profile is in use" if name is None else f"profile {name} is in use"
    show_change(output, change("profile use", name or "", steps), sentence)


@app.command("remove", epilog=examples("waltz profile remove from-home"))
@prints(Change)
def remove_command(name: Name, output: Output = Format.TABLE) -> None:
    """Remove a profile; if it is the one in use, no profile is in use afterwards."""
    with exit_on_expected_error():
        before = read_profiles(profiles_file())
        write_profiles(profiles_file(), before.remove(name))
    steps = [f"remove profile {name} from {profiles_file()}"]
    sentence = f"profile {name} is removed from {profiles_file()}"
    if before.used == name:
        steps.append("use no profile")
        sentence += ", and no profile is in use"
    show_change(output, change("profile remove", name, steps), sentence)


@app.command("list", epilog=examples("waltz profile list", "waltz profile list -o json"))
@prints(ProfileRow, ResultForm.LIST)
def list_command(output: Output = Format.TABLE) -> None:
    """Show all profiles, and which one is in use."""
    with exit_on_expected_error():
        saved = read_profiles(profiles_file())
    rows = [
        ProfileRow(
            name,
            used=name == saved.used,
            zookeeper=profile.zookeeper,
            root=profile.root,
            tls=profile.tls,
            access=profile.access,
        )
        for name, profile in sorted(saved.profiles.items())
    ]
    show(output, listing("Profiles", ProfileRow, rows))


def _check_name(name: str) -> None:
    """Raise Failed for a name that is hard to type as the value of an option.

    Such a name is empty, begins with -, begins or ends with a blank, or has unprintable characters.
    The message recommends simple names, but others are allowed, too.
    """
    has_outer_blank = name.strip() != name
    if not name or name.startswith("-") or has_outer_blank or not name.isprintable():
        raise Failed(f"{name!r} cannot be the name of a profile: use letters, digits, - and _")


def _tls_text(option: str | None) -> str:
    """Return what a profile saves for the option ``--tls``: ``on``, ``off``, or an absolute path.

    Without the option, it is `AS_DECLARED`: connections use TLS as the servers have declared in
    ZooKeeper. Raises ClusterNotNamed or TlsConfigError if ``option`` is a path, and the file there
    or a file that it names cannot be used.
    """
    if option is None:
        return AS_DECLARED
    config = tls_from_option(option)
    assert config is not None, "only a missing option has no configuration"
    if option.lower() in ("on", "off"):
        return option.lower()
    # Raises TlsConfigError already now, and not only when a command uses the profile.
    config.dialing_context()
    return str(Path(option).absolute())
