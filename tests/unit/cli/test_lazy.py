from __future__ import annotations

import signal
import subprocess
import sys

import click
import pytest
from click.testing import CliRunner
from tests.support.waiting import at_most

from trunkline.cli.lazy import COMMANDS
from trunkline.cli.main import main

HEAVY = {"asyncio", "uvloop", "ssl", "socket", "msgspec", "yaml", "ruamel.yaml", "http", "email", "logging", "unittest"}
NEEDED = ("lazy", "main", "options", "terminal")
LOOK = "import sys\nsys.argv[0] = 'trunkline'\nfrom trunkline.cli import main\ntry:\n    main()\nfinally:\n    "
LOOK += "print('\\n'.join(sys.modules), file=sys.stderr)"


@pytest.mark.parametrize("command", ["version", "--version", "--help", *COMMANDS, "up", "check"])
def test_help_and_version_load_nothing_heavy(command: str) -> None:
    arguments = [command] if command == "version" or command.startswith("-") else [command, "--help"]
    done = subprocess.run([sys.executable, "-c", LOOK, *arguments], capture_output=True, text=True, timeout=at_most(60))
    assert done.returncode == 0
    assert HEAVY & set(done.stderr.split()) == set()


def test_the_version_needs_nothing_but_the_command_line() -> None:
    done = subprocess.run([sys.executable, "-c", LOOK, "version"], capture_output=True, text=True, timeout=at_most(60))
    ours = {name for name in done.stderr.split() if name.startswith("trunkline.")}
    assert ours == {"trunkline.cli", "trunkline.version"} | {f"trunkline.cli.{name}" for name in NEEDED}


def test_every_command_is_where_the_table_says() -> None:
    context = click.Context(main)
    for name in main.list_commands(context):
        command = main.get_command(context, name)
        assert command is not None
        assert command.get_short_help_str()
    assert set(COMMANDS) < set(main.list_commands(context))


def test_ctrl_c_ends_any_command_with_130(monkeypatch: pytest.MonkeyPatch) -> None:
    @click.command()
    def interrupted() -> None:
        signal.raise_signal(signal.SIGINT)

    monkeypatch.setitem(main.commands, "interrupted", interrupted)
    assert CliRunner().invoke(main, ["interrupted"]).exit_code == 130


def test_colours_are_off_where_nobody_wants_them(monkeypatch: pytest.MonkeyPatch) -> None:
    @click.command()
    @click.pass_context
    def colour(context: click.Context) -> None:
        click.echo(str(context.color))

    monkeypatch.setitem(main.commands, "colour", colour)
    for environ, told in (({"NO_COLOR": "1"}, "False"), ({"TERM": "dumb"}, "False"), ({"TERM": "xterm"}, "None")):
        done = CliRunner().invoke(main, ["colour"], env={"NO_COLOR": None, **environ})
        assert done.stdout == f"{told}\n"
