"""Finding, loading and reporting on the configuration file, for every command that needs one."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Final, NoReturn

import click

from trunkline.cli.terminal import give_up_stderr, plain
from trunkline.config.config_file import ConfigFile, find_config, plugins_file
from trunkline.config.load import LoadedConfig, inspect_config, load_config
from trunkline.config.problems import render, render_json, summarize
from trunkline.config.settings import Settings
from trunkline.config.sources import UnreadySource
from trunkline.core.errors import CONFIG_UNREADABLE, Problem
from trunkline.sources import section_kinds

_PROJECT_FILE: Final = ".mcp.json"


def load_or_exit(config: Path | None) -> Settings:
    """The settings; problems go to stderr, and errors end the program with status 2."""
    return settings_of(config_or_exit(config, as_json=False))


def settings_of(file: ConfigFile) -> Settings:
    """The same for a file that was found already. Its user is asked, where there is a terminal, whether it counts."""
    from trunkline.cli.trust import until_trusted

    return settings_or_exit(until_trusted(lambda: load_file(file), lambda loaded: loaded.untrusted))


def tell_which(settings: Settings | None) -> None:
    """One line for people before something is started with a file that they did not name: which one it is."""
    if settings is not None and settings.origin != "named" and sys.stderr.isatty():
        click.echo(click.style(f"configuration: {plain(str(settings.path))}", dim=True), err=True)


def load_file(file: ConfigFile) -> LoadedConfig:
    return load_config(file, environ=os.environ, kinds=section_kinds())


def settings_or_exit(loaded: LoadedConfig) -> Settings:
    """Those of a file that has been read."""
    if loaded.problems:
        try:
            click.echo(render(loaded.problems, loaded.text, loaded.others).rstrip("\n"), err=True)
        except OSError:  # a full disk behind stderr: no reason to stop for a warning
            give_up_stderr()
    if loaded.settings is None:
        click.echo(f"\n{summarize(loaded.problems)}", err=True)
        sys.exit(CONFIG_UNREADABLE.exit)
    return loaded.settings


def report_problems(config: Path | None, *, as_json: bool) -> int:
    """What `trunkline check` prints, and its exit status."""
    file = config_or_exit(config, as_json=as_json)
    loaded = inspect_config(file, environ=os.environ, kinds=section_kinds())
    problems = [*loaded.problems, *_lacking(loaded.settings)]
    if as_json:
        click.echo(render_json(problems))
    elif problems:
        click.echo(render(problems, loaded.text, loaded.others).rstrip("\n"), err=True)
    if loaded.settings is None:
        if not as_json:
            click.echo(f"\n{summarize(loaded.problems)}", err=True)
        return CONFIG_UNREADABLE.exit
    if not as_json:
        is_trusted = bool(loaded.verdicts) and not loaded.untrusted
        click.echo(plain(_verdict(loaded.settings, loaded.plugins, is_trusted=is_trusted)))
    return 0


def _lacking(settings: Settings | None) -> Iterator[Problem]:
    """What servers that are switched on will miss on this machine; when they run, they say so themselves."""
    for name, section in settings.sources.items() if settings is not None else ():
        problem = section.lacks(os.environ) if section.enabled else None
        if problem is not None:
            yield replace(problem, where=name)


def _verdict(settings: Settings, plugins: Sequence[str], *, is_trusted: bool) -> str:
    sections = settings.sources.values()
    lacking = sum(isinstance(section, UnreadySource) and section.enabled for section in sections)
    fine = f"{settings.path}: fine, {len(sections)} server{'' if len(sections) == 1 else 's'}"
    if is_trusted:
        fine += ", trusted"
    if plugins:
        fine += f" ({', '.join(plugins)} from {plugins_file(settings.path)})"
    return f"{fine}; {lacking} cannot start until what the warnings name is there" if lacking else fine


def config_or_exit(config: Path | None, *, as_json: bool) -> ConfigFile:
    """The file to use; where there is none, that is said and the program ends with status 2."""
    file = find_config(config, Path(), Path.home())
    if file is None:
        _no_file(as_json=as_json)
    return file


def load_quietly(file: ConfigFile) -> Settings | None:
    """The settings of a file, if it is a good one and counts; somebody else has shown its problems."""
    return load_file(file).settings


def reloader(settings: Settings, adjust: Callable[[Settings], Settings]) -> Callable[[], LoadedConfig]:
    """What reads the same file again, with what the command line asked for beyond it."""

    def again() -> LoadedConfig:
        loaded = load_file(settings.file)
        return loaded if loaded.settings is None else replace(loaded, settings=adjust(loaded.settings))

    return again


def first_steps(folder: Path) -> str:
    """What somebody without a configuration file can do."""
    if (folder / _PROJECT_FILE).is_file():
        use = f"look at the file that is here and use it with `-c {_PROJECT_FILE}`"
        return f"{use}, or make one with `trunkline add NAME -- COMMAND…`"
    return "make one here with `trunkline add NAME -- COMMAND…`, name one with `-c FILE`, or try `trunkline demo`"


def _no_file(*, as_json: bool) -> NoReturn:
    problem = Problem(
        code=CONFIG_UNREADABLE,
        message="No configuration file found",
        hint=first_steps(Path()),
    )
    if as_json:
        click.echo(render_json([problem]))
    else:
        click.echo(f"error: {problem}", err=True)
    sys.exit(problem.code.exit)
