"""The configuration section of `kind: plugin`, apart from the kind so that checking a file loads no networking."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar

from trunkline.config.section import key
from trunkline.config.shapes import JsonValue, MapOf
from trunkline.config.sources import NOTHING
from trunkline.sources.sections import ProgramSection


class PluginSection(ProgramSection):
    """A program that speaks gRPC after go-plugin's handshake."""

    kind: ClassVar[str] = "plugin"

    config: Mapping[str, Any] = key(
        MapOf(JsonValue()), default=NOTHING, doc="The plugin's own settings, handed to it when it starts", secret=True
    )
