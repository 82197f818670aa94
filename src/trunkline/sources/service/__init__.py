"""The kind `service`: programs that execute a tool for each POST, with a token of the caller's session."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, ClassVar, Final

from trunkline.config.section import NestedSection, Section, SectionNodes, key
from trunkline.config.sources import NOTHING, ONE_DAY_S, GuardSettings, SourceSection
from trunkline.config.value_types import Boolean, JsonValue, ListOf, MapOf, Seconds, Text
from trunkline.core.errors import BAD_VALUE
from trunkline.core.source import Source, SourceKind
from trunkline.sources.sections import wrong_with_url

if TYPE_CHECKING:
    from trunkline.runtime.source_context import SourceContext

EVERYBODY: Final = "*"
"""The name of the token for callers without one of their own."""
_TOKEN: Final = re.compile(r"[\x21-\x7e]{1,8192}\Z")


def _wrong_with_endpoint(endpoint: str) -> str | None:
    if "?" in endpoint:
        return "An endpoint has no `?` part: `/tools/execute` is appended to it"
    return wrong_with_url(endpoint)


def _wrong_with_token(token: str) -> str | None:
    return None if not token or _TOKEN.match(token) else "A token is one word of plain characters"


def _wrong_with_tool_name(name: str) -> str | None:
    return None if 0 < len(name) <= 128 and name.isprintable() else "A tool's name has 1 to 128 printable characters"


class DeclaredTool(Section):
    """One tool of a service that does not list its tools itself."""

    name: str = key(Text(check=_wrong_with_tool_name), doc="What the service calls it")
    title: str = key(Text(), default="", doc="A name for people")
    description: str = key(Text(), default="", doc="What it does, for agents")
    inputSchema: Mapping[str, Any] = key(
        MapOf(JsonValue()), default=NOTHING, doc="The JSON Schema of its arguments; any object if not given"
    )
    outputSchema: Mapping[str, Any] = key(
        MapOf(JsonValue()), default=NOTHING, doc="The JSON Schema of its output, if that is an object"
    )
    annotations: Mapping[str, Any] = key(MapOf(JsonValue()), default=NOTHING, doc="MCP's hints, such as `readOnlyHint`")


class ServiceGuard(GuardSettings):
    """Checks on the arguments of calls to a service."""

    path_traversal: bool = key(
        Boolean(), default=True, doc="Refuse calls whose arguments contain path traversal (`..`)"
    )


class ServiceSection(SourceSection):
    """A service that executes tools over HTTP."""

    kind: ClassVar[str] = "service"

    endpoint: str = key(
        Text(check=_wrong_with_endpoint), doc="The service's address, before `/tools/execute`", secret=True
    )
    declare: tuple[DeclaredTool, ...] = key(
        ListOf(NestedSection(DeclaredTool)), default=(), doc="Tools in addition to those the service lists at `/tools`"
    )
    tokens: Mapping[str, str] = key(
        MapOf(Text(check=_wrong_with_token)),
        default=NOTHING,
        doc="Token to send, by session or principal; `*` is for everybody else",
        secret=True,
    )
    timeout: float = key(Seconds(maximum=ONE_DAY_S), default=30.0, doc="Seconds a call may take")
    guard: GuardSettings = key(
        NestedSection(ServiceGuard), default=ServiceGuard(), doc="Checks on the arguments of calls"
    )

    @classmethod
    def check(cls, values: Mapping[str, Any], nodes: SectionNodes) -> None:
        if values.get("sessions") == "shared":
            message = "A service cannot be `shared`: each session has its own token, and therefore its own results"
            nodes.reader.error(BAD_VALUE, nodes.of("sessions"), message, "leave `sessions` out")


def build(name: str, section: ServiceSection, context: SourceContext) -> Source:
    # imported here, so that checking a configuration loads no networking
    from trunkline.sources.service.source import ServiceSource

    return ServiceSource(name, section, context)


KIND = SourceKind(section=ServiceSection, build=build)
