"""Writes the tables of keys in docs/configuration.md, docs/sources/ and docs/workflows.md from what reads the files.

With `--check`, says whether they are current.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator, Mapping
from typing import Any, cast

from tools.docs_regions import DOCS, main

from trunkline.agents.workflow.inputs import InputSection
from trunkline.agents.workflow.load import WorkflowDocumentSection
from trunkline.agents.workflow.options import ModelServerSection
from trunkline.agents.workflow.proxy import McpProxySection, PluginToolsSection
from trunkline.agents.workflow.states import AgentSection, CommandSection, TerminalSection, TransitionSection
from trunkline.config.clients import ClientEntry
from trunkline.config.sandbox import SandboxSettings, SandboxValue
from trunkline.config.section import Key, Section, section_schema
from trunkline.config.settings import GatewaySettings
from trunkline.config.sources import SourceSection
from trunkline.gateway.operations import LIVE_KEYS
from trunkline.sources import KINDS, load_kind

Schema = dict[str, Any]
WORKFLOWS: Mapping[str, type[Section]] = {
    "workflow": WorkflowDocumentSection,
    "inputs": InputSection,
    "agent": AgentSection,
    "options": ModelServerSection,
    "command": CommandSection,
    "transitions": TransitionSection,
    "terminal": TerminalSection,
    "mcp_proxy": McpProxySection,
    "plugin_tools": PluginToolsSection,
}


# -- one key -----------------------------------------------------------------------------------------------------------


def words(schema: Schema) -> str:
    """What may be written for a key."""
    for choice in schema.get("anyOf", ()):
        if "$ref" not in choice and choice != {"type": "null"}:
            others = [words(other) for other in schema["anyOf"] if "const" in other or "properties" in other]
            return " or ".join([words(choice), *(other for other in others if other != words(choice))])
    if "enum" in schema:
        return _listed([f"`{word}`" for word in schema["enum"]])
    if "const" in schema:
        return f"`{schema['const']}`"
    return _of_type(schema)


def _of_type(schema: Schema) -> str:
    if not set(schema) - {"description", "default"}:
        return "value"
    if schema.get("additionalProperties") is False:
        return "mapping"
    kind = schema["type"]
    if kind == "boolean":
        return "`true` or `false`"
    if kind in ("integer", "number"):
        return f"{'whole ' if kind == 'integer' else ''}number{_range(schema)}"
    if kind == "array":
        return f"list of {_many(schema['items'])}"
    if kind == "object":
        return f"{_many(schema['additionalProperties'])} by name"
    return "text"


def _many(schema: Schema) -> str:
    """Several values of this kind; how large they may be is left to the message that says so."""
    if words(schema).startswith("`"):
        return words(schema)
    first = words(schema).partition(",")[0].split(" ", 1)
    return " ".join([f"{first[0]}s", *(word for word in first[1:])])


def _range(schema: Schema) -> str:
    least, most = schema.get("minimum"), schema.get("maximum")
    parts = [f"from {least:,}"] if least is not None else []
    parts += ["more than 0"] if "exclusiveMinimum" in schema else []
    parts += [f"up to {most:,.0f}"] if most is not None else []
    return f", {' '.join(parts)}" if parts else ""


def _listed(texts: list[str]) -> str:
    return " or ".join([", ".join(texts[:-1]), texts[-1]]) if len(texts) > 1 else texts[0]


def default_of(item: Key) -> str:
    if item.required:
        return "required"
    if item.default is None:
        return ""
    example = item.value_type.example(item.default)
    return f"`{json.dumps(example, ensure_ascii=False)}`" if example not in ("", [], {}) else ""


# -- tables ------------------------------------------------------------------------------------------------------------


def rows(kind: type[Section], outer: str = "") -> Iterator[tuple[str, Key, Schema]]:
    """Every key of a section, those of sections inside it by their whole path."""
    schemas = section_schema(kind)["properties"]
    for name, item in kind.declared.items():
        inner = getattr(item.value_type, "_kind", None)
        if inner is not None and issubclass(inner, Section):
            yield from rows(inner, f"{outer}{name}.")
        else:
            yield f"{outer}{name}", item, schemas[name]
            if isinstance(item.value_type, SandboxValue):
                yield from rows(SandboxSettings, f"{outer}{name}.")


def table(kind: type[Section], *, only: frozenset[str] | None = None, when: Mapping[str, str] | None = None) -> str:
    """`only` are keys of the section itself; `when` says for each of them when a change takes effect."""
    head = ["key", "type", "default", "meaning", *(["on change"] if when else [])]
    lines = [f"| {' | '.join(head)} |", f"|{'---|' * len(head)}"]
    for name, item, schema in rows(kind):
        top = name.partition(".")[0]
        if only is not None and top not in only:
            continue
        cells = [f"`{name}`", words(schema), default_of(item), item.doc]
        lines.append(f"| {' | '.join([*cells, *([when[top]] if when else [])])} |")
    return "\n".join(lines)


# -- when a change takes effect ----------------------------------------------------------------------------------------


def gateway_changes() -> dict[str, str]:
    return {name: "at once" if name in LIVE_KEYS else "at the next start" for name in GatewaySettings.declared}


def source_changes(kind: type[SourceSection]) -> dict[str, str]:
    """A key that the connection to a server does not depend on changes while the server goes on."""
    marked = {name: _mark(item) for name, item in kind.declared.items()}
    connection = kind(**marked).connection()
    kept = {name for name in marked if getattr(connection, name) is marked[name]}
    return {name: "server is replaced" if name in kept else "at once" for name in marked}


def _mark(item: Key) -> object:
    """A value that is found again by being this one; an inner section is one, for kinds that look into it."""
    return item.default.replace() if isinstance(item.default, Section) else object()


def kind_section(name: str) -> type[SourceSection]:
    return cast(type[SourceSection], load_kind(name).section)


def pages() -> dict[Any, dict[str, str]]:
    own = frozenset(SourceSection.declared)
    any_kind = kind_section(next(iter(KINDS)))
    contents: dict[Any, dict[str, str]] = {
        DOCS / "configuration.md": {
            "gateway": table(GatewaySettings, when=gateway_changes()),
            "sources": table(any_kind, only=own, when=source_changes(any_kind)),
            "mcpServers": table(ClientEntry),
        }
    }
    contents[DOCS / "workflows.md"] = {name: table(section) for name, section in WORKFLOWS.items()}
    for name in KINDS:
        section = kind_section(name)
        keys = frozenset(section.declared) - own
        page = DOCS / "sources" / f"{name.replace('_', '-')}.md"
        contents[page] = {name: table(section, only=keys, when=source_changes(section))}
    return contents


if __name__ == "__main__":
    sys.exit(main("tools.write_config_docs", pages(), sys.argv[1:]))
