"""The kind `plugin`: programs that speak gRPC after go-plugin's handshake, as AWF's do. Each operation is a tool."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, ClassVar

from trunkline.config.section import key
from trunkline.config.sources import NOTHING
from trunkline.config.value_types import JsonValue, MapOf
from trunkline.core.source import Source, SourceKind
from trunkline.sources.sections import ProgramSection

if TYPE_CHECKING:
    from trunkline.runtime.source_context import SourceContext


class PluginSection(ProgramSection):
    """A program that speaks gRPC after go-plugin's handshake."""

    kind: ClassVar[str] = "plugin"

    config: Mapping[str, Any] = key(
        MapOf(JsonValue()), default=NOTHING, doc="The plugin's own settings, passed to it when it starts", secret=True
    )


def build(name: str, section: PluginSection, context: SourceContext) -> Source:
    # imported here, so that checking a configuration loads no networking
    from trunkline.sources.plugin.source import PluginSource

    return PluginSource(name, section, context)


KIND = SourceKind(section=PluginSection, build=build)
