"""``waltz local``: a whole cluster on this machine. Touches disk, processes and the network.

The command that starts a cluster stays its *supervisor*: it runs the processes until it is stopped.
The other verbs send requests to the supervisor (`waltz.local`).
"""

from __future__ import annotations

import contextlib
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console
from rich.text import Text

from waltz.cli.changes import Change, change, check_change_template, show_change
from waltz.cli.cluster.rows import LocalStatus, LogLine, render_local_processes
from waltz.cli.fields import ResultForm, prints
from waltz.cli.local_names import server_ids
from waltz.cli.options import examples
from waltz.cli.output import Format, Output, OutputFormat, show, show_line
from waltz.cli.running import Failed, exit_on_expected_error, run
from waltz.local import (
    UP,
    ClusterLayout,
    Control,
    LocalCluster,
    NotRunning,
    PlanError,
    Shape,
    end_left_over,
    last_lines,
    local_logs,
    make_directory,
    new_lines,
    open_logs,
    read_description,
    read_running,
    request_stop,
    send_control,
    supervise,
    wait_until_down,
    wanted_shape,
)
from waltz.runtime.cluster_file import LOCAL_DIRECTORY, local_command
from waltz.runtime.extras import check_installed

app = typer.Typer(
    no_args_is_help=True,
    help="Run a whole cluster on this machine: ZooKeeper, storages, servers.",
)

_UP_SECONDS = 180.0
"""How long the start of a cluster in the background may take."""
_SAYS_UP_SECONDS = 5.0
"""How long the supervisor may take to say that the cluster is up, once it takes requests."""
_POLL_SECONDS = 0.05
"""The time between two checks whether the cluster has started."""
_STATUS_SECONDS = 3.0
"""How long ``waltz local status`` waits for a session with ZooKeeper, to read the server ids."""

Dir = Annotated[
    Path, typer.Option("--dir", "-d", help="The directory of all files of the cluster.")
]


def _complete_name(context: typer.Context, incomplete: str) -> list[str]:
    """Return the names of processes that begin with ``incomplete``, for the completion in a shell.

    There are none if the directory has no cluster.
    """
    directory = context.params.get("directory") or LOCAL_DIRECTORY
    try:
        names = local_logs(Path(directory), None)
    except (NotRunning, PlanError):
        return []
    return [name for name in names if name.startswith(incomplete)]


Name = Annotated[
    str,
    typer.Argument(
        metavar="NAME",
        autocompletion=_complete_name,
        help="The process: storage/1, server/0 or zookeeper.",
    ),
]


@app.command(
    epilog=examples(
        "waltz local up",
        "waltz local up --detach",
        "waltz local up --dir /tmp/w --partitions 8 --storages 3 --servers 2 --detach",
    )
)
@prints(Change)
def up(
    directory: Dir = LOCAL_DIRECTORY,
    partitions: Annotated[
        int | None, typer.Option(min=1, help="Number of partitions. Default: 4.")
    ] = None,
    storages: Annotated[
        int | None, typer.Option(min=1, help="Number of storages and replicas. Default: 3.")
    ] = None,
    servers: Annotated[
        int | None, typer.Option(min=1, help="Number of servers. Default: 2.")
    ] = None,
    tls: Annotated[
        bool | None, typer.Option("--tls/--plaintext", help="Use TLS. Default: plaintext.")
    ] = None,
    host: Annotated[
        str | None,
        typer.Option(
            help="The IPv4 address of this machine, or its name, on which all processes listen. "
            "Every host that reaches it can change the cluster. Default: 127.0.0.1."
        ),
    ] = None,
    session_timeout: Annotated[
        int,
        typer.Option(
            min=1000, help="Milliseconds until other servers take the partitions of a dead server."
        ),
    ] = 6000,
    detach: Annotated[
        bool, typer.Option("--detach", help="Run the cluster in the background.")
    ] = False,
    output: Output = Format.TABLE,
) -> None:
    """Start a cluster, and run it until Ctrl-C or waltz local down.

    If the directory has a cluster already, that cluster starts again with its data, its ports and
    its numbers of processes.
    """
    # Checked first: a template that does not fit would be an error of `show_started`, and would
    # stop the cluster.
    check_change_template(output)
    counts = {"partitions": partitions, "storages": storages, "servers": servers}
    options = {**counts, "tls": tls, "host": host}
    typed = {name: value for name, value in options.items() if value is not None}
    with exit_on_expected_error():
        # ZooKeeper runs from the jars of pyspark.
        check_installed("waltz local up", "local", "aiohttp", "prometheus_client", "pyspark")
        make_directory(directory)
        shape = wanted_shape(directory, typed)
        if detach:
            _up_in_background(directory, shape, session_timeout)
            # An empty sentence, because people have seen the progress of the start already.
            show_change(output, _change_by_start(directory), "")
            return
        say_progress = _progress_printer()
        cluster = LocalCluster(
            directory, shape, session_timeout_ms=session_timeout, on_progress=say_progress
        )

    def show_started() -> None:
        show_change(output, _change_by_start(directory), "")
        # A script that reads the output needs the result now, and this process does not end yet.
        sys.stdout.flush()

    run(supervise(cluster, say_progress, show_started), seconds=None)


@app.command(epilog=examples("waltz local down", "waltz local down --dir /tmp/w"))
@prints(Change)
def down(directory: Dir = LOCAL_DIRECTORY, output: Output = Format.TABLE) -> None:
    """Stop a cluster; its data stay."""
    with exit_on_expected_error():
        is_stopped_by_supervisor = request_stop(directory) and wait_until_down(directory)
        if is_stopped_by_supervisor:
            steps, sentence = ["stop all processes"], "stopped"
        else:  # The supervisor had died before the request, or died while it stopped the cluster.
            ended = end_left_over(directory)
            steps = [f"end {name}, whose supervisor is dead" for name in ended]
            sentence = f"ended the processes of a dead supervisor: {', '.join(ended) or 'none'}"
    show_change(output, change("local down", str(directory), steps), sentence)


@app.command(epilog=examples("waltz local kill storage/1", "waltz local start storage/1"))
@prints(Change)
def kill(name: Name, directory: Dir = LOCAL_DIRECTORY, output: Output = Format.TABLE) -> None:
    """Kill one process, as a crash would."""
    run(send_control(directory, Control.KILL, name))
    sentence = f"{name} was killed; start it with: {local_command(directory, 'start', name)}"
    show_change(output, change("local kill", name, [f"kill {name}"]), sentence)


@app.command(epilog=examples("waltz local start storage/1"))
@prints(Change)
def start(name: Name, directory: Dir = LOCAL_DIRECTORY, output: Output = Format.TABLE) -> None:
    """Start one process again, and wait until it is ready."""
    run(send_control(directory, Control.START, name), seconds=None)
    show_change(output, change("local start", name, [f"start {name}"]), f"{name} is running")


@app.command(epilog=examples("waltz local status", "waltz local status -o json"))
@prints(LocalStatus)
def status(directory: Dir = LOCAL_DIRECTORY, output: Output = Format.TABLE) -> None:
    """Show the processes of a running cluster. The exit status is 1 if no cluster runs."""
    with exit_on_expected_error():
        description = read_running(directory)
    processes = description["processes"]
    id_of_address: dict[str, int] = {}
    # If ZooKeeper does not run, the query would fail, but only after some seconds.
    if processes["zookeeper"]["pid"] is not None:
        id_of_address = run(server_ids(directory, _STATUS_SECONDS))
    for name, process in processes.items():
        if name.startswith("server/"):
            process["server_id"] = id_of_address.get(process["address"])
    show(output, render_local_processes(description))


@app.command(
    epilog=examples(
        "waltz local logs server/0", "waltz local logs --lines 20", "waltz local logs --follow"
    )
)
@prints(LogLine, ResultForm.LINES)
def logs(
    name: Annotated[
        str | None,
        typer.Argument(
            metavar="[NAME]", autocompletion=_complete_name, help="Default: all processes."
        ),
    ] = None,
    directory: Dir = LOCAL_DIRECTORY,
    lines: Annotated[
        int, typer.Option("--lines", "-n", min=0, help="How many of the last lines.")
    ] = 50,
    follow: Annotated[
        bool, typer.Option("--follow", "-f", help="Wait for more lines, until Ctrl-C.")
    ] = False,
    output: Output = Format.TABLE,
) -> None:
    """Print the last lines of the logs of a cluster's processes, also after the cluster stopped."""
    with (
        exit_on_expected_error(),
        contextlib.suppress(KeyboardInterrupt),
        open_logs(local_logs(directory, name)) as log_files,
    ):
        for process, log in log_files.items():
            for line in last_lines(log, lines):
                _print_line(output, process, line, prefixed=name is None)
        if follow:
            for process, line in new_lines(log_files):
                _print_line(output, process, line, prefixed=name is None)


def _print_line(output: OutputFormat, process: str, line: str, *, prefixed: bool) -> None:
    """Print a line of the log of a process; if ``prefixed``, people also see the process's name."""
    shown = f"{process}: {line}" if prefixed else line
    show_line(output, {"process": process, "line": line}, shown)


def _change_by_start(directory: Path) -> Change:
    """Return the change that the start of the cluster in ``directory`` made: its processes run."""
    processes = read_description(directory)["processes"]
    steps = [f"start {name} as process {process['pid']}" for name, process in processes.items()]
    return change("local up", str(directory), steps)


class _ProgressConsole(Console):
    """Prints to standard error, which may be a pipe that has lost its reader."""

    def on_broken_pipe(self) -> None:
        """Do nothing. The method of rich would end the supervisor, and its processes would stay."""


def _progress_printer() -> Callable[[str], None]:
    """Return a function that prints a message after the number of seconds since this call.

    A message that cannot be printed is dropped, because the cluster must run without it.
    """
    begun = time.monotonic()

    def say_elapsed(message: str) -> None:
        line = Text.assemble((f"{time.monotonic() - begun:6.1f} s  ", "dim"), message)
        # A new console for each message: a console keeps a message that it could not print, and
        # would print it before the next one.
        with contextlib.suppress(OSError):
            _ProgressConsole(stderr=True, highlight=False, soft_wrap=True).print(line)

    return say_elapsed


def _up_in_background(directory: Path, shape: Shape, session_timeout: int) -> None:
    """Start the supervisor of the cluster as another process; return when the cluster is up.

    If the supervisor ends and has printed the reason, the command ends with status 1. Raises Failed
    if the supervisor ends without a reason, or if the cluster is not up within `_UP_SECONDS`. After
    each of these errors, and after Ctrl-C, the supervisor stops its cluster.
    """
    layout = ClusterLayout(directory.absolute())
    log = layout.log("supervisor")
    log.parent.mkdir(parents=True, exist_ok=True)
    command = [sys.executable, "-m", "waltz.cli", "local", "up", "--dir", str(layout.directory)]
    for name in ("partitions", "storages", "servers", "host"):
        command += [f"--{name}", str(getattr(shape, name))]
    command += ["--tls" if shape.tls else "--plaintext", "--session-timeout", str(session_timeout)]
    with log.open("ab") as log_file:
        output_start = log_file.tell()
        supervisor = subprocess.Popen(
            command,
            stdin=subprocess.DEVNULL,
            stdout=log_file,
            stderr=subprocess.STDOUT,
            start_new_session=True,  # Ctrl-C in this terminal must not stop the cluster.
        )
    try:
        _await_controllable(directory, supervisor, log, output_start)
    except BaseException:
        # Also after Ctrl-C: otherwise the cluster might come up after the command has failed.
        supervisor.terminate()
        raise


def _await_controllable(
    directory: Path, supervisor: subprocess.Popen[bytes], log: Path, output_start: int
) -> None:
    """Wait until the cluster is up; meanwhile show the user what the supervisor prints to ``log``.

    ``output_start`` is the size of ``log`` when the supervisor was started. Raises the errors of
    `_up_in_background`.
    """
    deadline = time.monotonic() + _UP_SECONDS
    is_up = False
    printed = ""
    with log.open() as supervisor_output:
        supervisor_output.seek(output_start)
        while True:
            if not is_up and _is_controllable(directory, supervisor.pid):
                is_up = True
                # The supervisor says so a moment later, or never, if the disk of the log is full.
                deadline = time.monotonic() + _SAYS_UP_SECONDS
            # Polled before the output is read: if the supervisor has ended here, the read gets the
            # rest of its output.
            has_ended = supervisor.poll() is not None
            new_output = supervisor_output.read()
            sys.stderr.write(new_output)
            printed += new_output
            is_late = time.monotonic() > deadline
            if is_up and (UP in printed or is_late):
                return
            # The supervisor prints why it cannot run the cluster: `exit_on_expected_error` begins
            # each error text with this word.
            if has_ended and any(line.startswith("waltz: ") for line in printed.splitlines()):
                raise typer.Exit(1)
            if has_ended:
                raise Failed(f"the cluster did not start; see {log}")
            if is_late:
                raise Failed(f"the cluster was not up within {_UP_SECONDS:g} s; see {log}")
            time.sleep(_POLL_SECONDS)


def _is_controllable(directory: Path, supervisor_pid: int) -> bool:
    """Return whether the cluster of the supervisor ``supervisor_pid`` is up and takes requests."""
    try:
        description = read_description(directory)
    except NotRunning:
        return False
    return description["supervisor"] == supervisor_pid and description["control"] is not None
