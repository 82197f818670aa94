"""Finds, loads and checks the configuration file, for every command that needs one."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Final

import click

from trunkline.cli.terminal import discard_stderr, exit_with, plain
from trunkline.config.files import ConfigFile, find_config, plugins_file
from trunkline.config.load import LoadedConfig, load_config
from trunkline.config.problems import render, render_json, summarize
from trunkline.config.settings import STATE_DIR, GatewaySettings, Settings
from trunkline.config.sources import UnreadySource
from trunkline.core.errors import CONFIG_UNREADABLE, Problem
from trunkline.sources import section_kinds

_PROJECT_FILE: Final = ".mcp.json"


def load_or_exit(config: Path | None) -> Settings:
    """The settings. Problems are printed on stderr, and errors end the program with status 2."""
    return settings_of(config_or_exit(config))


def settings_of(file: ConfigFile) -> Settings:
    """The same for a file that was found already. On a terminal, the user is asked whether to trust it."""
    from trunkline.cli.trust_prompt import until_trusted

    return settings_or_exit(until_trusted(lambda: load_file(file), lambda loaded: loaded.untrusted))


def announce_config(settings: Settings | None) -> None:
    """Say on a terminal which file is used, if the user did not name it."""
    if settings is not None and settings.origin != "named" and sys.stderr.isatty():
        click.echo(click.style(f"configuration: {plain(str(settings.path))}", dim=True), err=True)


def load_file(file: ConfigFile) -> LoadedConfig:
    return load_config(file, environ=os.environ, kinds=section_kinds())


def settings_or_exit(loaded: LoadedConfig) -> Settings:
    try:
        _print_problems(loaded, loaded.problems)
    except OSError:  # a full disk behind stderr is no reason to stop
        discard_stderr()
    if loaded.settings is None:
        sys.exit(CONFIG_UNREADABLE.exit)
    return loaded.settings


def _print_problems(loaded: LoadedConfig, problems: Sequence[Problem]) -> None:
    if problems:
        click.echo(render(problems, loaded.text, loaded.others).rstrip("\n"), err=True)
    if loaded.settings is None:
        click.echo(f"\n{summarize(loaded.problems)}", err=True)


def report_problems(config: Path | None, *, as_json: bool) -> int:
    """Print what `trunkline check` shows. Returns its exit status."""
    file = config_or_exit(config)
    loaded = load_config(file, environ=os.environ, kinds=section_kinds(), inspect_only=True)
    settings = loaded.settings
    problems: list[Problem] = list(loaded.problems)
    for name, section in settings.sources.items() if settings is not None else ():
        lacking = section.lacks(os.environ) if section.enabled else None  # on this machine, such as a program
        if lacking is not None:
            problems.append(replace(lacking, where=name))
    if as_json:
        click.echo(render_json(problems))
        return CONFIG_UNREADABLE.exit if settings is None else 0
    _print_problems(loaded, problems)
    if settings is None:
        return CONFIG_UNREADABLE.exit
    sections = settings.sources.values()
    summary = f"{settings.path}: OK, {len(sections)} server{'' if len(sections) == 1 else 's'}"
    if loaded.verdicts and not loaded.untrusted:
        summary += ", trusted"
    if loaded.plugins:
        summary += f" ({', '.join(loaded.plugins)} from {plugins_file(settings.path)})"
    unready = sum(isinstance(section, UnreadySource) and section.enabled for section in sections)
    if unready:
        summary += f"; {unready} cannot start until the warnings above are resolved"
    click.echo(plain(summary))
    return 0


def config_or_exit(config: Path | None) -> ConfigFile:
    """The file to use. If there is none, a message says so and the program ends with status 2."""
    file = find_config(config, Path(), Path.home())
    if file is None:
        exit_with(Problem(code=CONFIG_UNREADABLE, message="No configuration file found", hint=first_steps(Path())))
    return file


def found_settings(config: Path | None = None) -> Settings | None:
    """The settings of the file that would be used; None if there is none, or it has errors or is not trusted."""
    file = find_config(config, Path(), Path.home())
    return None if file is None else load_file(file).settings


def default_settings(folder: Path) -> Settings:
    """The settings that apply if there is no configuration file."""
    return Settings(folder / "trunkline.yaml", GatewaySettings(state_dir=Path(STATE_DIR).expanduser()), {})


def reloader(
    settings: Settings, adjust: Callable[[Settings], Settings] = lambda settings: settings
) -> Callable[[], LoadedConfig]:
    """A function that reads the same file again; `adjust` applies the options of the command line."""

    def reload() -> LoadedConfig:
        loaded = load_file(settings.file)
        return loaded if loaded.settings is None else replace(loaded, settings=adjust(loaded.settings))

    return reload


def first_steps(folder: Path) -> str:
    """A hint for users without a configuration file."""
    if (folder / _PROJECT_FILE).is_file():
        use = f"use the `{_PROJECT_FILE}` in this folder with `-c {_PROJECT_FILE}`"
        return f"{use}, or create a file with `trunkline add NAME -- COMMAND…`"
    return "create one here with `trunkline add NAME -- COMMAND…`, name one with `-c FILE`, or try `trunkline demo`"
