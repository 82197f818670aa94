from __future__ import annotations

import json
import signal
import subprocess
import sys

import click
import pytest
from click.testing import CliRunner
from tests.support.waiting import at_most

from trunkline.cli.main import COMMANDS, main

HEAVY = {"asyncio", "uvloop", "ssl", "socket", "msgspec", "yaml", "ruamel.yaml", "http", "email", "logging", "unittest"}
NEEDED = ("interrupts", "main", "options", "terminal")
ASKED = [["version"], ["--version"], ["--help"], *([command, "--help"] for command in [*COMMANDS, "check"])]
LOOK = """
import sys
known, asked, found = set(sys.modules), sys.argv[1:], []
from trunkline.cli import main
for words in asked:
    sys.argv = ["trunkline", *words.split()]
    try:
        main()
    except SystemExit as end:
        assert not end.code, words
    found.append(sorted(set(sys.modules) - known))
    known |= set(sys.modules)
import json
json.dump(found, sys.stderr)
"""


def test_help_and_version_load_nothing_heavy() -> None:
    """In one process, so that each shows what those before it had not loaded; the version is first."""
    command = [sys.executable, "-c", LOOK, *map(" ".join, ASKED)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=at_most(60))
    assert done.returncode == 0, done.stderr
    loaded = dict(zip(map(" ".join, ASKED), json.loads(done.stderr), strict=True))
    assert {words: HEAVY & set(names) for words, names in loaded.items() if HEAVY & set(names)} == {}
    ours = {name for name in loaded["version"] if name.startswith("trunkline.")}
    hiding = {"trunkline.runtime", "trunkline.runtime.processes"}  # before anything else
    assert ours == {"trunkline.cli", "trunkline.version"} | hiding | {f"trunkline.cli.{name}" for name in NEEDED}


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
