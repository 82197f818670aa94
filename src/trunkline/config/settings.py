"""What a good configuration file gives: everything the gateway is built from."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from trunkline.config.found import ConfigFile, Origin
from trunkline.config.gateway import GatewaySettings
from trunkline.config.reader import Referred
from trunkline.config.secret_values import secrets_in, secrets_in_environment
from trunkline.config.section import Section
from trunkline.config.sources import SourceSection
from trunkline.runtime.state_files import gateway_key, gateways_folder

_TOKENS: Final = "tokens"


@dataclass(frozen=True, slots=True)
class Settings:
    """`sources` is in file order: on equal names the earlier source wins. `referred` are the variables that the file
    refers to, with their values, and `files` those that values were taken from. `origin` says by whose word the file
    counts."""

    path: Path
    gateway: GatewaySettings
    sources: Mapping[str, SourceSection]
    referred: frozenset[Referred] = field(default=frozenset(), repr=False)
    files: frozenset[Path] = frozenset()
    origin: Origin = "named"

    @property
    def file(self) -> ConfigFile:
        """What to load again to get what the file says now."""
        return ConfigFile(self.path, self.origin)

    def secrets(self, environ: Mapping[str, str] = os.environ) -> set[str]:
        """Every value that nobody may get to see, of the configuration and of what its programs inherit."""
        secrets = {*secrets_of(self.gateway), *secrets_in_environment(environ)}
        for variable, value in self.referred:
            secrets.update(secrets_in(variable, value, from_outside=True))
        for section in self.sources.values():
            secrets.update(secrets_of(section))
        for inherited in {getattr(section, "inherit_env", ()) for section in self.sources.values()} - {()}:
            secrets.update(secrets_in_environment(environ, inherited))
        return secrets

    def names(self) -> set[str]:
        """What the file calls servers and tools: nobody's secret, whatever variable has the same value."""
        names = set(self.sources)
        for section in self.sources.values():
            tools = section.tools
            names.update((section.prefix, *tools.allow, *tools.deny, *tools.rename, *tools.rename.values()))
            names.update(tool.name for tool in getattr(section, "declare", ()))
        return names


def secrets_of(section: Section) -> Iterator[str]:
    """The secrets that are written in a section, and in those inside it."""
    for name, declared in section.declared.items():
        value = getattr(section, name)
        if isinstance(value, Section):
            yield from secrets_of(value)
        elif declared.secret:
            yield from secrets_in("token" if name == _TOKENS else name, value)


def gateway_folder(settings: Settings) -> Path:
    """Where the gateway of this configuration file keeps its state. The folder may not exist yet."""
    return gateways_folder(settings.gateway.state_dir) / gateway_key(settings.path)
