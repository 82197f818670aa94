"""The kind `plugin`: programs that speak gRPC after go-plugin's handshake, as AWF's do. Each operation is a tool."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, ClassVar, Literal, cast

from trunkline.config.section import key
from trunkline.config.shapes import JsonValue, MapOf
from trunkline.config.sources import NOTHING
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
    from trunkline.protocol.jsonrpc import encode
    from trunkline.runtime.children import child_environment
    from trunkline.sources.plugin.source import Launch, PluginSource
    from trunkline.sources.sections import limits_of

    inherit = cast(tuple[str, ...] | Literal["all"], section.inherit_env)
    launch = Launch(
        argv=[section.command, *section.args],
        env=child_environment(context.environ, extra=section.env, inherit=inherit),
        cwd=None if section.cwd is None else str(section.cwd),
        limits=limits_of(section.limits),
        config={key: encode(value) for key, value in section.config.items()},
        timeout_s=section.start_timeout,
    )
    return PluginSource(name, launch, context)


KIND = SourceKind(section=PluginSection, build=build)
