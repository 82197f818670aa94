"""Commands that are imported when they are asked for."""

from __future__ import annotations

import subprocess
import sys

import click
import pytest

from trunkline.cli.lazy import COMMANDS
from trunkline.cli.main import main


@pytest.mark.parametrize("name", sorted(COMMANDS))
def test_every_command_of_the_table_is_there_under_its_name(name: str) -> None:
    command = main.get_command(click.Context(main), name)
    assert command is not None
    assert command.name == name
    assert command.get_short_help_str()


def test_the_list_of_commands_holds_all_of_them() -> None:
    listed = main.list_commands(click.Context(main))
    assert {*COMMANDS, "check", "version"} <= set(listed)
    assert main.get_command(click.Context(main), "nonsense") is None


def test_starting_the_program_imports_none_of_them() -> None:
    script = "import sys, trunkline.cli; print(*sys.modules)"
    loaded = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True).stdout.split()
    modules = {place.partition(":")[0] for place in COMMANDS.values()}
    assert modules.isdisjoint(loaded)
    assert {"trunkline.core.explanations", "trunkline.config.edit.servers", "yaml"}.isdisjoint(loaded)
