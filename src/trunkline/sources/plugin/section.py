"""The configuration section of `kind: plugin`, apart from the kind so that checking a file loads no networking."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any, ClassVar

from trunkline.config.json_shape import JsonValue
from trunkline.config.section import key
from trunkline.config.shapes import FilePath, ListOf, MapOf, Text
from trunkline.config.sources import NOTHING, SourceSection
from trunkline.sources.sections import Command, NamesOrAll, wrong_with_variable


class PluginSection(SourceSection):
    """A program that speaks gRPC after go-plugin's handshake."""

    kind: ClassVar[str] = "plugin"

    command: str = key(Command(), doc="The plugin's program: a name from PATH or a path")
    args: tuple[str, ...] = key(ListOf(Text(written=True)), default=(), doc="The program's arguments", secret=True)
    env: Mapping[str, str] = key(
        MapOf(Text(written=True), check_name=wrong_with_variable),
        default=NOTHING,
        doc="Environment variables of the program",
        secret=True,
    )
    cwd: Path | None = key(FilePath(), default=None, doc="The folder the program starts in; ours if not given")
    inherit_env: tuple[str, ...] | str = key(
        NamesOrAll(), default=(), doc="Our environment variables the program gets besides the usual ones, or `all`"
    )
    config: Mapping[str, Any] = key(
        MapOf(JsonValue()), default=NOTHING, doc="The plugin's own settings, handed to it when it starts", secret=True
    )
