"""Programs that dial in: a listener, and a server for each app that registers."""

from __future__ import annotations

from trunkline.core.source import Source, SourceKind
from trunkline.runtime.source_context import Parts
from trunkline.sources.app.section import AppSection


def build(name: str, section: AppSection, parts: Parts) -> Source:
    from trunkline.sources.app.host import AppHost

    return AppHost(name, section, parts.message_bytes, parts.unfinished)


KIND = SourceKind(section=AppSection, build=build)
