"""Plugins: programs that speak gRPC after go-plugin's handshake, as AWF's do. Each operation of one is a tool."""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal, cast

from trunkline.core.source import Source, SourceKind
from trunkline.sources.plugin.section import PluginSection

if TYPE_CHECKING:
    from trunkline.runtime.source_context import Parts


def build(name: str, section: PluginSection, parts: Parts) -> Source:
    from trunkline.protocol.jsonrpc import encode
    from trunkline.runtime.children import child_environment
    from trunkline.sources.plugin.source import PluginSource
    from trunkline.sources.plugin.start import Launch
    from trunkline.sources.process_limits import limits_of

    inherit = cast(tuple[str, ...] | Literal["all"], section.inherit_env)
    launch = Launch(
        argv=[section.command, *section.args],
        env=child_environment(parts.environ, extra=section.env, inherit=inherit),
        cwd=None if section.cwd is None else str(section.cwd),
        limits=limits_of(section.limits),
        config={key: encode(value) for key, value in section.config.items()},
        timeout_s=section.start_timeout,
    )
    return PluginSource(name, launch, parts)


KIND = SourceKind(section=PluginSection, build=build)
