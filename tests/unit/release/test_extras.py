"""Test what `import waltz` imports, and the messages about a missing extra.

`release.extras` tries each extra in an environment of its own.
"""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

import waltz
from release.extras import TRIALS
from release.versions import project_extras, project_version

_LIBRARIES_OF_EXTRAS = (
    "aiohttp",
    "click",
    "kopf",
    "numpy",
    "prometheus_client",
    "pydantic",
    "pyspark",
    "rich",
    "sqlalchemy",
    "typer",
    "yaml",
)
_LIBRARIES_OF_CLIENT = {"fastcrc", "typing_extensions"}
"""What the first use of `waltz.connect` loads from outside the standard library."""
_MOST_IMPORTED = 60
"""How many modules `import waltz` may load; it loads about 30, depending on the environment."""
_MOST_USED = 350
"""The same for the first use of `waltz.connect`, which loads about 260."""
_FOR_DEVELOPERS = {"demo", "dev", "docs"}
"""Extras that need the repository."""


def run(program: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, timeout=60
    )


def imported_by(program: str) -> set[str]:
    ended = run(f"import sys\n{program}\nprint(*sys.modules)")
    assert ended.returncode == 0, ended.stderr
    return set(ended.stdout.split())


def test_import_of_waltz_imports_neither_client_nor_event_loop() -> None:
    imported = imported_by("import waltz")
    assert "waltz" in imported
    assert not {"asyncio", "dataclasses", "waltz.client"} & imported


def test_import_of_waltz_loads_few_modules_and_none_of_another_library() -> None:
    """A measured time would depend on the machine and on its load."""
    loaded = imported_by("import waltz") - imported_by("")
    roots = {name.partition(".")[0] for name in loaded}
    assert roots - sys.stdlib_module_names == {"waltz"}
    assert {name for name in loaded if name.startswith("waltz")} == {"waltz"}
    assert len(loaded) < _MOST_IMPORTED


def test_first_use_of_waltz_loads_only_the_libraries_of_the_client() -> None:
    loaded = imported_by("import waltz; waltz.connect; waltz.Client") - imported_by("")
    roots = {name.partition(".")[0] for name in loaded}
    assert roots - sys.stdlib_module_names == {"waltz", *_LIBRARIES_OF_CLIENT}
    assert len(loaded) < _MOST_USED


def test_import_of_client_loads_no_library_of_an_extra() -> None:
    program = "import waltz, waltz.pytest_plugin, waltz.sync.callbacks; waltz.connect; waltz.Client"
    imported = imported_by(program)
    assert "waltz.client.client" in imported
    assert not set(_LIBRARIES_OF_EXTRAS) & imported


def test_import_of_client_loads_neither_kazoo_nor_cryptography_before_they_are_needed() -> None:
    assert not {"kazoo", "cryptography"} & imported_by("import waltz; waltz.connect; waltz.Client")


@pytest.mark.parametrize("name", waltz.__all__)
def test_public_name_is_found_and_listed(name: str) -> None:
    assert getattr(waltz, name) is not None
    assert name in dir(waltz)


def test_unknown_name_of_waltz_is_an_attribute_error() -> None:
    with pytest.raises(AttributeError, match="module 'waltz' has no attribute 'Klient'"):
        getattr(waltz, "Klient")  # noqa: B009 - mypy would refuse the attribute


@pytest.mark.parametrize(
    ("module", "program", "library", "extra"),
    [
        ("waltz.cli", "waltz", "typer", "cli"),
        ("waltz.cli", "waltz", "pydantic", "cli"),
        ("waltz_server.__main__", "waltz-server", "aiohttp", "server"),
        ("waltz_storage.__main__", "waltz-storage", "pydantic_settings", "storage"),
        ("waltz_operator.__main__", "waltz-operator", "kopf", "operator"),
    ],
)
def test_command_without_its_extra_names_the_extra_in_one_line(
    module: str, program: str, library: str, extra: str
) -> None:
    ended = run(f"import sys; sys.modules['{library}'] = None; from {module} import main; main()")
    assert ended.returncode == 1
    remedy = f"pip install 'waltz-log[{extra}]'"
    assert ended.stderr == f"{program}: the command needs {library}: {remedy}\n"


@pytest.mark.parametrize(
    ("program", "library", "message"),
    [
        ("import waltz.state", "sqlalchemy", "waltz.state needs sqlalchemy: 'waltz-log[sql]'"),
        ("import waltz.testing", "aiohttp", "waltz.testing needs aiohttp: 'waltz-log[testing]'"),
        (
            "import waltz; waltz.connect_as_configured('none')",
            "yaml",
            "connect_as_configured needs yaml: 'waltz-log[config]'",
        ),
        (
            "import os, waltz.sync; os.environ['WALTZ_TLS'] = 'tls.yaml'\n"
            "with waltz.sync.connect(): pass",
            "yaml",
            "WALTZ_TLS with a file needs yaml: 'waltz-log[config]'",
        ),
    ],
)
def test_package_without_its_extra_names_the_extra(
    program: str, library: str, message: str
) -> None:
    ended = run(f"import sys; sys.modules['{library}'] = None; {program}")
    last = ended.stderr.splitlines()[-1]
    assert last.removeprefix("waltz.runtime.extras.ExtraMissing: ") == message.replace(
        ": '", ": pip install '"
    )


def test_export_to_parquet_without_pyarrow_names_the_extra_in_one_line(tmp_path: Path) -> None:
    folder = tmp_path / "exported"
    program = (
        "import sys\n"
        "sys.modules['pyarrow'] = None\n"
        "from waltz.cli import main\n"
        f"sys.argv = ['waltz', 'log', 'export', {str(folder)!r}, '--format', 'parquet',\n"
        "            '-z', '127.0.0.1:1']\n"
        "main()"
    )
    ended = run(program)
    assert (ended.returncode, ended.stdout) == (1, "")
    remedy = "pip install 'waltz-log[parquet]', or use --format jsonl"
    assert ended.stderr == f"waltz: Parquet files need pyarrow: {remedy}\n"
    assert not folder.exists()


def test_operator_shows_its_version_and_refuses_unknown_arguments_without_its_extra() -> None:
    def operator(*words: str) -> subprocess.CompletedProcess[str]:
        return run(
            "import sys; sys.modules['kopf'] = None\n"
            "from waltz_operator.__main__ import main\n"
            f"sys.argv = ['waltz-operator', *{words!r}]; main()"
        )

    shown = operator("--version")
    assert (shown.returncode, shown.stderr) == (0, "")
    assert shown.stdout == f"waltz-operator {project_version()}\n"
    assert "waltz-operator plan --help" in operator("--help").stdout
    refused = operator("--verison")
    assert refused.returncode == 2
    assert "unrecognized arguments: --verison" in refused.stderr


def test_missing_module_of_the_distribution_is_not_blamed_on_an_extra() -> None:
    ended = run(
        "import sys; sys.modules['waltz.cli.app'] = None; from waltz.cli import main; main()"
    )
    assert "ModuleNotFoundError" in ended.stderr
    assert "pip install" not in ended.stderr


def test_local_cluster_without_spark_names_the_extra_in_one_line() -> None:
    program = (
        "import sys\n"
        "from waltz.cli import main\n"
        "sys.modules['pyspark'] = None\n"
        "sys.argv = ['waltz', 'local', 'up', '--dir', 'never']\n"
        "main()"
    )
    ended = run(program)
    remedy = "pip install 'waltz-log[local]'"
    assert (ended.returncode, ended.stdout) == (1, "")
    assert ended.stderr == f"waltz: waltz local up needs pyspark: {remedy}\n"


def test_console_without_aiohttp_names_the_extra_in_one_line() -> None:
    program = (
        "import sys\n"
        "from waltz.cli import main\n"
        "sys.modules['aiohttp'] = None\n"
        "sys.argv = ['waltz', 'console', '--zookeeper', 'none:1']\n"
        "main()"
    )
    ended = run(program)
    remedy = "pip install 'waltz-log[console]'"
    assert (ended.returncode, ended.stdout) == (1, "")
    assert ended.stderr == f"waltz: waltz console needs aiohttp: {remedy}\n"


def test_every_extra_for_users_is_tried_in_a_fresh_environment() -> None:
    tried = {extra for trial in TRIALS.values() for extra in trial.extras.split(",")} - {""}
    assert tried == project_extras() - _FOR_DEVELOPERS
