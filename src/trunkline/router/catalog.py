"""The catalog: the tools, prompts and resources of all sources by the names that callers use.

Sources replace their whole snapshot, and the catalog is rebuilt when it is next used: a rebuild takes a few
milliseconds for a thousand tools, and fifty servers that come up together cost one. A look-up is then one dictionary
access, and a listing is ready as bytes.

`CatalogViews` has the catalog of each caller: a source may offer other tools to one session.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Set
from dataclasses import dataclass, field

import msgspec

from trunkline.core.call import Caller
from trunkline.core.errors import Problem
from trunkline.core.names import without_own_prefix
from trunkline.core.tool import Snapshot, ToolDefinition
from trunkline.protocol.jsonrpc import encode, encode_members, members_of
from trunkline.protocol.mcp.param_headers import BadAnnotation, HeaderParameter, header_parameters_of
from trunkline.router.naming import PREFIXED, CatalogEntry, NameTable, NamingScheme, assign_names
from trunkline.router.options import NameRules
from trunkline.router.resources import Resources


@dataclass(slots=True)
class ToolEntry(CatalogEntry):
    """A tool in the catalog. `params_head` is the beginning of the parameters of `tools/call`: the
    source's own name for the tool, encoded. `header_parameters` are arguments to be repeated in HTTP headers, None for
    nearly every tool. `rewrites_uris` is set if its results may have URIs that clash with those of other servers."""

    tool: ToolDefinition
    params_head: bytes
    header_parameters: tuple[HeaderParameter, ...] | None = None
    rewrites_uris: bool = False

    @property
    def public_name(self) -> str:
        """The name to call it by: its exposed name, or its address if it has none."""
        return self.exposed or self.address


class Catalog:
    """What all sources offer, by name."""

    def __init__(self, naming: str, max_name: int, on_change: Callable[[], None]) -> None:
        self._naming = naming
        self._max_name = max_name
        self._on_change = on_change
        self._rules: dict[str, NameRules] = {}
        self._snapshots: dict[str, Snapshot] = {}
        self._hidden: set[str] = set()
        self._entries: list[ToolEntry] = []
        self._names: NameTable[ToolEntry] = NameTable({}, ())
        self._listing: bytes | None = None
        self._prompts: Prompts | None = None
        self._resources: Resources | None = None
        self.version = 0
        """A number that increases with every change."""
        self._built_version = 0

    # -- changing it --------------------------------------------------------------------------------------------------

    def add_source(self, source: str, rules: NameRules) -> None:
        """Add a source, or set the naming rules of one."""
        if self._rules.get(source) != rules:
            self._rules = {**self._rules, source: rules}
            if source in self._snapshots:
                self._changed()

    def remove_source(self, source: str) -> None:
        self._rules = {name: rules for name, rules in self._rules.items() if name != source}
        self._snapshots.pop(source, None)
        self._hidden.discard(source)
        self._changed()

    def reorder(self, order: Iterable[str]) -> None:
        """Set the order of the sources in lists, which also decides which of two tools gets a name."""
        rules = {name: self._rules[name] for name in order if name in self._rules}
        rules |= {name: self._rules[name] for name in self._rules if name not in rules}
        if list(rules) != list(self._rules):
            self._rules = rules
            self._changed()

    def rename(self, naming: str, max_name: int) -> None:
        """Set the style and maximum length of exposed names."""
        if (naming, max_name) != (self._naming, self._max_name):
            self._naming, self._max_name = naming, max_name
            self._changed()

    def replace(self, source: str, snapshot: Snapshot | None) -> None:
        """Set what a source offers; None if that is not known."""
        if self._snapshots.get(source) == snapshot:
            if snapshot is not None:
                self._snapshots[source] = snapshot  # equal, but with newer freshness
            return
        if snapshot is None:
            del self._snapshots[source]
        else:
            self._snapshots[source] = snapshot
        self._changed()

    def hide(self, source: str, hidden: bool) -> None:
        """Set whether a source is left out of lists. Calls still find its tools, and get the reason it is down."""
        if (source in self._hidden) != hidden:
            (self._hidden.add if hidden else self._hidden.discard)(source)
            self._changed()

    def _changed(self) -> None:
        self.version += 1
        self._prompts = self._resources = None
        self._on_change()

    def overlaid(self, snapshots: Mapping[str, Snapshot]) -> Catalog:
        """A copy of this catalog in which some sources offer something else."""
        catalog = Catalog(self._naming, self._max_name, lambda: None)  # it is never changed, but replaced
        catalog._rules = self._rules
        catalog._hidden = self._hidden
        catalog._snapshots = {**self._snapshots, **snapshots}
        catalog.version = 1
        return catalog

    def snapshot(self, source: str) -> Snapshot | None:
        return self._snapshots.get(source)

    # -- looking things up --------------------------------------------------------------------------------------------

    def find(self, name: str) -> ToolEntry | None:
        if self._built_version != self.version:
            self._rebuild()
        entry = self._names.table.get(name)  # every call comes here: not by way of `find`
        return entry if entry is not None else self._names.find(name)

    def addresses_of(self, bare_name: str) -> list[str]:
        """The addresses of all tools of this name, for a caller that has to choose one."""
        return [
            tool.address
            for source, rules in self._rules.items()
            if source in self._snapshots and rules.shows(bare_name)
            for tool in self._snapshots[source].tools
            if tool.name == bare_name
        ]

    def sources_that_may_have(self, name: str) -> list[str]:
        """The sources that an unknown name may belong to, judging by its prefix."""
        bare = without_own_prefix(name)
        return [
            source
            for source, rules in self._rules.items()
            if bare.startswith((f"{source}.", f"{source}_", f"{source}:", f"{rules.prefix}_"))
            or self._naming != PREFIXED
            or not rules.prefix
        ]

    def entries(self, *, hidden: bool = False) -> list[ToolEntry]:
        """All tools in the order of the list, also those without an exposed name; with `hidden` also those of servers
        that are down."""
        if self._built_version != self.version:
            self._rebuild()
        return [entry for entry in self._entries if hidden or entry.source not in self._hidden]

    @property
    def listing(self) -> bytes:
        """The array of `tools/list`: exposed definitions, in the order of the configuration and of each server."""
        if self._built_version != self.version:
            self._rebuild()
        if self._listing is None:  # built on demand: clients that search for tools never list them
            self._listing = b"[%b]" % b",".join(
                shown_definition(entry)
                for entry in self.entries()
                if entry.exposed is not None and entry.name not in self._rules[entry.source].unlisted
            )
        return self._listing

    @property
    def collisions(self) -> tuple[Problem, ...]:
        if self._built_version != self.version:
            self._rebuild()
        return self._names.collisions

    @property
    def prompts(self) -> Prompts:
        if self._prompts is None:
            self._prompts = Prompts(self._naming_scheme(), self._snapshots, self._hidden)
        return self._prompts

    @property
    def resources(self) -> Resources:
        if self._resources is None:
            self._resources = Resources(self._rules, self._snapshots, self._hidden)
        return self._resources

    @property
    def sources(self) -> Iterable[str]:
        """All sources in the order of the configuration, also hidden ones."""
        return self._rules

    def is_hidden(self, source: str) -> bool:
        return source in self._hidden

    # -- building -----------------------------------------------------------------------------------------------------

    def _rebuild(self) -> None:
        with_resources = self.resources.sources if self.resources.several else ()
        entries = [
            _tool_entry(tool, rewrites_uris=source in with_resources)
            for source, rules in self._rules.items()
            if source in self._snapshots
            for tool in self._snapshots[source].tools
            if rules.shows(tool.name)
        ]
        self._names = assign_names(
            self._naming_scheme(),
            entries,
            lambda entry: self._rules[entry.source].rename.get(entry.name, entry.name),
            "call it by its address, or set `prefix` or `tools.rename` for `{}`",
        )
        self._entries = entries
        self._listing = None
        self._built_version = self.version

    def _naming_scheme(self) -> NamingScheme:
        return NamingScheme(self._naming, self._max_name, self._rules)


def shown_definition(entry: ToolEntry) -> bytes:
    """The server's definition of a tool with the name that callers use; everything else byte for byte."""
    return _renamed(entry.tool.definition, entry.name, entry.public_name)


def _renamed(definition: bytes, name: str, shown: str) -> bytes:
    if name == shown:
        return definition
    return encode_members({**members_of(definition, "definition"), "name": encode(shown)})


def _tool_entry(tool: ToolDefinition, *, rewrites_uris: bool) -> ToolEntry:
    params_head = b'{"name":%b' % encode(tool.name)
    return ToolEntry(tool.source, tool.name, tool.aliases, tool, params_head, _header_parameters(tool), rewrites_uris)


def _header_parameters(tool: ToolDefinition) -> tuple[HeaderParameter, ...] | None:
    try:
        return header_parameters_of(tool.definition) or None
    except BadAnnotation:  # tools of HTTP servers are checked when they are listed; for others it does not matter
        return None


class _Annotations(msgspec.Struct, rename="camel"):
    read_only_hint: bool = False


class _Definition(msgspec.Struct):
    annotations: _Annotations | None = None


def says_read_only(definition: bytes) -> bool:
    """Whether a tool's definition declares it read-only (`annotations.readOnlyHint`)."""
    try:
        annotations = msgspec.json.decode(definition, type=_Definition).annotations
    except (msgspec.MsgspecError, RecursionError):
        return False
    return annotations is not None and annotations.read_only_hint


# -- prompts ----------------------------------------------------------------------------------------------------------


@dataclass(slots=True)
class PromptEntry(CatalogEntry):
    definition: bytes


class Prompts:
    """The prompts of one version of the catalog, named by the same rules as tools."""

    def __init__(self, scheme: NamingScheme, snapshots: Mapping[str, Snapshot], hidden: Set[str]) -> None:
        self._entries = [
            PromptEntry(source, prompt.key, (), prompt.definition)
            for source in scheme.rules
            if source in snapshots
            for prompt in snapshots[source].prompts
        ]
        hint = "get it by its address, or set `prefix` for `{}`"
        self._names = assign_names(scheme, self._entries, lambda entry: entry.name, hint)
        self.collisions = self._names.collisions
        self.listing = b"[%b]" % b",".join(
            _renamed(entry.definition, entry.name, entry.exposed)
            for entry in self._entries
            if entry.exposed is not None and entry.source not in hidden
        )
        """The array of `prompts/list`: exposed definitions, in the order of the configuration and of each server."""

    def find(self, name: str) -> PromptEntry | None:
        """Find a prompt by any accepted spelling, also one of a server that is down."""
        return self._names.find(name)

    def addresses_of(self, bare_name: str) -> list[str]:
        """The addresses of all prompts of this name, for a caller that has to choose one."""
        return [entry.address for entry in self._entries if entry.name == bare_name]


# -- views ------------------------------------------------------------------------------------------------------------


@dataclass(slots=True)
class _View:
    """What some sources offer to one session, and the catalog overlaid with that."""

    snapshots: dict[str, Snapshot] = field(default_factory=dict[str, Snapshot])
    catalog: Catalog | None = None
    base_version: int = -1


class CatalogViews:
    """The catalog as each caller sees it: a server with a session per client may offer other tools to one of them."""

    def __init__(self, catalog: Catalog) -> None:
        self._catalog = catalog
        self._views: dict[str, _View] = {}

    def of(self, caller: Caller) -> Catalog:
        """The catalog as this caller sees it."""
        if not self._views or caller.session is None:
            return self._catalog
        view = self._views.get(caller.session)
        if view is None:
            return self._catalog
        if view.catalog is None or view.base_version != self._catalog.version:
            view.base_version = self._catalog.version
            view.catalog = self._catalog.overlaid(view.snapshots)
        return view.catalog

    def overlay(self, session: str, source: str, snapshot: Snapshot | None) -> None:
        """Set what a source offers to a session; None if that is what it offers to everybody."""
        view = self._views.setdefault(session, _View())
        if snapshot is None or snapshot == self._catalog.snapshot(source):
            view.snapshots.pop(source, None)
        else:
            view.snapshots[source] = snapshot
        view.catalog = None
        if not view.snapshots:
            del self._views[session]

    def forget(self, session: str) -> None:
        self._views.pop(session, None)

    def drop_source(self, source: str) -> bool:
        """Drop what a source offered to single sessions. Returns whether there was anything."""
        sessions = [session for session, view in self._views.items() if source in view.snapshots]
        for session in sessions:
            self.overlay(session, source, None)
        return bool(sessions)
