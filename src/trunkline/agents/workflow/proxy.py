"""The `mcp_proxy` block of an agent step: its keys, the names of its tools, and that these are unique."""

from __future__ import annotations

from typing import ClassVar, Final

from trunkline.agents.workflow.document import PluginTools, Proxy
from trunkline.agents.workflow.reader import PluginEntry, ProxyBlock, ProxySection, WorkflowReader, is_null, or_none
from trunkline.agents.workflow.value_types import LocatedText
from trunkline.config.reader import ConfigReader
from trunkline.config.section import key, read_section
from trunkline.config.tree import ListNode, Node, Scalar, Table
from trunkline.config.value_types import Boolean, ListOf
from trunkline.core.errors import PROXY_EMPTY, PROXY_NAME_COLLISION
from trunkline.core.names import exposed_name, is_source_name, slug

_UNCUT: Final = 1_000_000


class PluginToolsSection(ProxySection):
    """One entry of `plugin_tools`."""

    called: ClassVar[str] = "An entry of `plugin_tools`"

    plugin: Scalar = key(
        LocatedText(), doc="The plugin or MCP server: its name in `.awf/plugins.yaml` or under `sources`"
    )
    expose: tuple[Scalar, ...] = key(ListOf(LocatedText()), doc="The operations that become tools")


class McpProxySection(ProxySection):
    """The keys of `mcp_proxy`."""

    enable: bool = key(Boolean(), default=False, doc="Whether the agent gets its tools from Trunkline")
    intercept_builtins: bool = key(
        Boolean(),
        default=True,
        doc="Whether Trunkline's tools replace the agent's own; `false` only adds those named here",
    )
    sources: tuple[Scalar, ...] = key(
        ListOf(LocatedText()), default=(), doc="Sources of the configuration whose tools the agent gets as well"
    )


def source_name(plugin: str) -> str:
    """The name of a plugin as a source: AWF accepts any name, sources do not."""
    return plugin if is_source_name(plugin) else slug(plugin)


def read_proxy(node: Node | None, provider: Node | None, reader: WorkflowReader) -> Proxy | None:
    """Read the block of the current step; None if it is absent, empty, invalid or not enabled. Problems are in the
    report, and an enabled block is kept in the reader."""
    if node is None or is_null(node):
        return None
    if not isinstance(node, Table):
        reader.wrong_type(node, "a mapping")
        return None
    keys = or_none(lambda: read_section(McpProxySection, node, reader, also_known=("plugin_tools",)))
    entries = _entries(node.get("plugin_tools"), reader)
    if node.entries and node.get("enable") is None:
        message = "`mcp_proxy` has no effect without `enable: true`: the agent keeps its own tools"
        hint = "add `enable: true`, or `enable: false` if that is meant"
        reader.warn(PROXY_EMPTY, node.entries[0].key, message, hint)
    if not _flag(node, "enable", default=False):
        return None
    block = ProxyBlock(
        step=reader.step,
        provider=provider if isinstance(provider, Scalar) else None,
        intercepts=_flag(node, "intercept_builtins", default=True),
        plugin_tools=entries,
        sources=_texts(node.get("sources")),
    )
    reader.proxies.append(block)
    _check_names(block, reader)
    _check_sources(block, reader)
    _check_not_empty(node, block, reader)
    if keys is None:
        return None
    tools = tuple(
        PluginTools(plugin=source_name(entry.plugin.text), expose=tuple(operation.text for operation in entry.expose))
        for entry in entries
    )
    sources = tuple(source.text for source in keys.sources)
    return Proxy(intercept_builtins=keys.intercept_builtins, plugin_tools=tools, sources=sources)


def _entries(node: Node | None, reader: ConfigReader) -> tuple[PluginEntry, ...]:
    """The entries of `plugin_tools` as far as they can be read, also those with a mistake."""
    if node is None or is_null(node):
        return ()
    if not isinstance(node, ListNode):
        reader.wrong_type(node, "a list", "begin each entry with `- plugin: NAME`")
        return ()
    for item in node.items:
        or_none(lambda item=item: read_section(PluginToolsSection, item, reader))
    tables = [item for item in node.items if isinstance(item, Table)]
    plugins = ((plugin, table) for table in tables for plugin in _texts(table.get("plugin")))
    return tuple(PluginEntry(plugin, _texts(table.get("expose"))) for plugin, table in plugins)


def _texts(node: Node | None) -> tuple[Scalar, ...]:
    nodes = node.items if isinstance(node, ListNode) else [node]
    return tuple(node for node in nodes if isinstance(node, Scalar) and node.kind == "text" and node.text)


def _flag(table: Table, name: str, *, default: bool) -> bool:
    """A boolean, or its default if it is invalid, which is reported elsewhere."""
    node = table.get(name)
    return node.text.lower() == "true" if isinstance(node, Scalar) and node.kind == "boolean" else default


def _check_names(block: ProxyBlock, reader: ConfigReader) -> None:
    """Check that tool names are unique. Built-in tools cannot collide: their names have no `_`."""
    owners: dict[str, str] = {}
    exposed = ((entry.plugin.text, operation) for entry in block.plugin_tools for operation in entry.expose)
    for plugin, operation in exposed:
        name = exposed_name(source_name(plugin), operation.text, "", _UNCUT)
        this = f"`{operation.text}` of `{plugin}`"
        if name in owners:
            message = f"{this} would become the tool `{name}`, a name already taken by {owners[name]}"
            hint = "expose it once, or rename the plugin"
            reader.error(PROXY_NAME_COLLISION, operation, message, hint)
        else:
            owners[name] = f"{this} on line {operation.span.line}"


def _check_sources(block: ProxyBlock, reader: ConfigReader) -> None:
    """Check that each source is named once, either in `sources` or in `plugin_tools`."""
    exposed = {source_name(entry.plugin.text) for entry in block.plugin_tools}
    seen: set[str] = set()
    for source in block.sources:
        if source.text in seen or source.text in exposed:
            where = "twice" if source.text in seen else "in `sources` and in `plugin_tools`"
            message = f"`{source.text}` is named {where}: each of its tools would appear twice"
            reader.error(PROXY_NAME_COLLISION, source, message, "name it once")
        seen.add(source.text)


def _check_not_empty(table: Table, block: ProxyBlock, reader: ConfigReader) -> None:
    plugin_tools = table.get("plugin_tools")
    if isinstance(plugin_tools, ListNode):
        exposes = [item.get("expose") if isinstance(item, Table) else None for item in plugin_tools.items]
        has_none = all(isinstance(expose, ListNode) and not expose.items for expose in exposes)
    else:
        has_none = plugin_tools is None or is_null(plugin_tools)
    sources = table.get("sources")
    if sources is not None and not is_null(sources):
        has_none = has_none and isinstance(sources, ListNode) and not sources.items
    # what cannot be read is reported already
    if block.intercepts or block.sources or not has_none:
        return
    place = next(entry.key for entry in table.entries if entry.key.text == "enable")
    message = "The proxy is enabled and has no tool to offer: `intercept_builtins` is `false`, and nothing is exposed"
    hint = "add `plugin_tools` or `sources`, or leave out `intercept_builtins: false`"
    reader.error(PROXY_EMPTY, place, message, hint)
