"""Services: containers and other programs that execute a tool for a POST, each with a token of the caller's session."""

from __future__ import annotations

from typing import TYPE_CHECKING

from trunkline.core.source import Source, SourceKind
from trunkline.sources.service.section import ServiceSection

if TYPE_CHECKING:
    from trunkline.runtime.source_context import Parts


def build(name: str, section: ServiceSection, parts: Parts) -> Source:
    from trunkline.sources.service.source import ServiceSource

    return ServiceSource(name, section, parts)


KIND = SourceKind(section=ServiceSection, build=build)
