"""Chooses the gateway that a command talks to: the one at `--url`, the one running for the file, or one to start."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path
from typing import Final
from urllib.parse import urlsplit

import click

from trunkline.cli.configuration import (
    first_steps,
    found_settings,
    load_file,
    load_or_exit,
    settings_of,
    settings_or_exit,
)
from trunkline.cli.options import TOKEN_VARIABLE, mcp_url
from trunkline.cli.terminal import print_error
from trunkline.config.files import ConfigFile, find_config
from trunkline.config.settings import STATE_DIR, Settings
from trunkline.core.bind_address import is_loopback
from trunkline.core.errors import CONFIG_UNREADABLE, GatewayError, Problem
from trunkline.gateway.operator_token import read_operator_token
from trunkline.runtime.gateway_records import RunningGateway, all_running, find_running
from trunkline.runtime.state_files import gateway_key, gateways_folder

OPERATOR_VARIABLE: Final = "TRUNKLINE_OPERATOR_TOKEN"


@dataclass(frozen=True, slots=True)
class RemoteTarget:
    """A running gateway, with the tokens this user may know; empty ones are not sent."""

    url: str
    socket: str = ""
    token: str = ""
    operator_token: str = ""


def find_target(config: Path | None, url: str | None) -> RemoteTarget | Settings:
    """The running gateway to ask, or the settings to start one with for a single command.

    Raises GatewayError if there is neither; a bad file ends the program, as for every command.
    """
    if url is not None:
        return _named(mcp_url(url), config)
    file = find_config(config, Path(), Path.home())
    if file is None:
        return _only_running()
    loaded = load_file(file)
    settings = loaded.settings
    # the usual `state_dir` if the file cannot be read any more
    state_dir = _default_state_dir() if settings is None else settings.gateway.state_dir
    record = find_running(gateways_folder(state_dir) / gateway_key(file.path.absolute()))
    if record is None:
        return settings_of(file) if loaded.untrusted else settings_or_exit(loaded)
    if settings is None:
        wrong = "is not trusted" if loaded.untrusted else "has errors"
        message = f"`{file.path}` {wrong}; asking the running gateway, which still uses the previous version"
        print_error(message, "run `trunkline check` for details", kind="warning")
    return _of_record(record, state_dir, settings)


# -- by its URL -------------------------------------------------------------------------------------------------------


def _named(url: str, config: Path | None) -> RemoteTarget:
    """The gateway at this URL.

    Tokens are sent only to the gateway they belong to: one that left its record here, one that is named together with
    its file, or one at the address that the file in use gives it.
    """
    found = found_settings(config)
    own = [] if found is None else [found.gateway.state_dir]
    for state_dir in dict.fromkeys([*own, _default_state_dir()]):
        for record in all_running(state_dir):
            if _is_at(record, url):
                return _of_record(record, state_dir, _settings_of(record))
    settings = load_or_exit(config) if config is not None else found
    token, operator_token = _from_environment(TOKEN_VARIABLE), _from_environment(OPERATOR_VARIABLE)
    parts = urlsplit(url)
    if settings is not None and (
        config is not None
        or (parts.scheme == "http" and settings.gateway.listen.is_at(parts.hostname or "", parts.port or 80))
    ):
        token = settings.gateway.token or token
        operator_token = settings.gateway.operator_token or operator_token
    return RemoteTarget(url, "", token, operator_token)


def _is_at(record: RunningGateway, url: str) -> bool:
    """Whether a gateway has this URL. `localhost` matches its loopback address, which is the one then connected to."""
    if record.url == url:
        return True
    asked, known = urlsplit(url), urlsplit(record.url)
    by_name = asked.hostname == "localhost" and is_loopback(known.hostname or "")
    return by_name and (asked.scheme, asked.port, asked.path) == (known.scheme, known.port, known.path)


# -- by its record ----------------------------------------------------------------------------------------------------


def _only_running() -> RemoteTarget:
    running = all_running(_default_state_dir())
    if len(running) == 1:
        record = running[0]
        click.echo(f"asking the gateway at {record.url}", err=True)
        return _of_record(record, _default_state_dir(), _settings_of(record))
    if not running:
        message = "No configuration file found, and no gateway is running"
        hint = f"{first_steps(Path())}; `--url` names a gateway elsewhere"
    else:
        message = "No configuration file found, and several gateways are running"
        hint = f"choose one with `--url`: {', '.join(record.url for record in running)}"
    raise GatewayError(Problem(code=CONFIG_UNREADABLE, message=message, hint=hint))


def _of_record(record: RunningGateway, state_dir: Path, settings: Settings | None) -> RemoteTarget:
    """The tokens of the file come first, then the one that the gateway generated, then those of the environment, which
    may belong to another gateway."""
    gateway = None if settings is None else settings.gateway
    folder = gateways_folder(state_dir) / gateway_key(Path(record.config))
    socket = record.socket if record.socket and Path(record.socket).is_socket() else ""
    return RemoteTarget(
        record.url,
        socket,
        token=(gateway.token if gateway else "") or _from_environment(TOKEN_VARIABLE),
        operator_token=(gateway.operator_token if gateway else "")
        or read_operator_token(folder)
        or _from_environment(OPERATOR_VARIABLE),
    )


def _settings_of(record: RunningGateway) -> Settings | None:
    return load_file(ConfigFile.named(Path(record.config))).settings


def _from_environment(variable: str) -> str:
    return os.environ.get(variable, "").strip()


def _default_state_dir() -> Path:
    return Path(STATE_DIR).expanduser()
