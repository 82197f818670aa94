"""Which gateway a command asks: the one of `--url`, one that runs for the same file, or one made for the moment."""

from __future__ import annotations

import os
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import click

from trunkline.cli.configuration import load_or_exit, load_quietly
from trunkline.cli.gateway_url import TOKEN_VARIABLE, mcp_url
from trunkline.config.gateway import STATE_DIR
from trunkline.config.load import find_config
from trunkline.config.settings import Settings
from trunkline.config.state import gateway_folder, gateway_key, gateways_folder
from trunkline.core.errors import CONFIG_UNREADABLE, GatewayError, Problem
from trunkline.links.running import Running, all_running, find_running
from trunkline.serve.operator_token import read_operator_token

OPERATOR_VARIABLE: Final = "TRUNKLINE_OPERATOR_TOKEN"


@dataclass(frozen=True, slots=True)
class There:
    """A gateway that runs. The tokens are what this user may know; empty ones are not sent."""

    url: str
    socket: str = ""
    token: str = ""
    operator_token: str = ""


@dataclass(frozen=True, slots=True)
class Here:
    """No gateway runs: the servers of this file are started for the moment."""

    settings: Settings


def whom_to_ask(config: Path | None, url: str | None) -> There | Here:
    """Raises GatewayError where there is nobody to ask; a bad file ends the program as everywhere."""
    if url is not None:
        return _named(mcp_url(url), config)
    path = find_config(config, Path(), Path.home())
    if path is None:
        return _only_one_that_runs()
    settings = load_or_exit(config)
    record = find_running(gateway_folder(settings))
    return Here(settings) if record is None else _of_record(record, settings.gateway.state_dir, settings)


def _named(url: str, config: Path | None) -> There:
    """Tokens are sent to nobody but the gateway they belong to."""
    for record in _known_gateways(config):
        if record.url == url:
            settings = load_quietly(Path(record.config))
            state_dir = settings.gateway.state_dir if settings else _default_state_dir()
            return _of_record(record, state_dir, settings)
    return There(url, "", os.environ.get(TOKEN_VARIABLE, ""), os.environ.get(OPERATOR_VARIABLE, ""))


def _known_gateways(config: Path | None) -> list[Running]:
    path = find_config(config, Path(), Path.home())
    settings = load_quietly(path) if path is not None else None
    state_dirs = {_default_state_dir()}
    if settings is not None:
        state_dirs.add(settings.gateway.state_dir)
    return [record for state_dir in state_dirs for record in all_running(state_dir)]


def _only_one_that_runs() -> There:
    running = all_running(_default_state_dir())
    if len(running) == 1:
        record = running[0]
        click.echo(f"asking the gateway at {record.url}", err=True)
        return _of_record(record, _default_state_dir(), load_quietly(Path(record.config)))
    if not running:
        message = "No configuration file found, and no gateway runs"
        hint = "start one with `trunkline up`, make a file with `trunkline add`, or name one with `-c FILE` or `--url`"
    else:
        message = "No configuration file found, and several gateways run"
        hint = f"name one with `--url`: {', '.join(record.url for record in running)}"
    raise GatewayError(Problem(code=CONFIG_UNREADABLE, message=message, hint=hint))


def _of_record(record: Running, state_dir: Path, settings: Settings | None) -> There:
    folder = gateways_folder(state_dir) / gateway_key(Path(record.config))
    token = os.environ.get(TOKEN_VARIABLE, "")
    operator_token = os.environ.get(OPERATOR_VARIABLE, "")
    if settings is not None:
        token = settings.gateway.token or token
        operator_token = settings.gateway.operator_token or operator_token
    return There(record.url, record.socket, token, operator_token or read_operator_token(folder))


def _default_state_dir() -> Path:
    return Path(STATE_DIR).expanduser()


def complain(error: GatewayError) -> int:
    """Show a problem as every command does; the exit status it owns."""
    problem = error.problem
    click.echo(f"{click.style('error', fg='red', bold=True)}: {problem}", err=True)
    for detail in error.details:
        click.echo(f"  {detail}", err=True)
    return problem.code.exit or 1


def end(error: GatewayError) -> None:
    sys.exit(complain(error))
