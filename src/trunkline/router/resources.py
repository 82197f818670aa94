"""The resources of all sources: which source a URI belongs to, and the addresses of those whose URI clashes.

The first source in the order of the configuration keeps a URI. The same URI of a later one is listed as its address,
`trunkline://SERVER/URI`, which is accepted for every resource.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Set
from typing import Final, NamedTuple

from trunkline.core.errors import NAME_COLLISION, Problem
from trunkline.core.hidden_text import reveal
from trunkline.core.tool import ItemDefinition, Snapshot
from trunkline.protocol.jsonrpc import encode, encode_members, members_of
from trunkline.protocol.mcp.capabilities import server_capabilities
from trunkline.protocol.uri_template import CandidateUri, UriTemplate

SCHEME: Final = "trunkline://"
_MATCHED_CHARACTERS: Final = 32 * 1024
"""How much of a server's templates is matched against URIs, at up to half a microsecond for each character."""


class ResourceLocation(NamedTuple):
    """A source, and its own URI (or URI template) of a resource."""

    source: str
    uri: str


def resource_address(location: ResourceLocation) -> str:
    return f"{SCHEME}{location.source}/{location.uri}"


class Resources:
    """The resources and resource templates of one version of the catalog."""

    def __init__(self, order: Iterable[str], snapshots: Mapping[str, Snapshot], hidden: Set[str]) -> None:
        self._order = {source: snapshots.get(source) for source in order}
        self._by_folded_name = {source.casefold(): source for source in reversed(self._order)}
        self.sources = tuple(
            source for source, snapshot in self._order.items() if snapshot and _has_resources(snapshot)
        )
        """The sources that have resources, listed or not, in the order of the configuration."""
        unpublished = sum(snapshot is None for snapshot in self._order.values())
        self.several = len(self.sources) + unpublished > 1
        """Whether URIs may be ambiguous, at the latest when all sources have published what they offer."""
        self._owners: dict[str, str] = {}
        self._template_owners: dict[str, str] = {}
        self._displaced: dict[str, str] = {}
        self._revealed: dict[ResourceLocation, str] = {}
        """A source's own URI for each that is listed with its hidden characters shown."""
        known = [(source, snapshot) for source, snapshot in self._order.items() if snapshot is not None]
        resources = [item for _, snapshot in known for item in snapshot.resources]
        templates = [item for _, snapshot in known for item in snapshot.templates]
        self.listing = b"[%b]" % b",".join(self._definitions(resources, self._owners, "uri", hidden))
        """The array of `resources/list`."""
        listed = self._definitions(templates, self._template_owners, "uriTemplate", hidden)
        self.template_listing = b"[%b]" % b",".join(listed)
        """The array of `resources/templates/list`."""
        self.collisions = tuple(_collision(source, uri) for source, uri in self._displaced.items())
        self._templates = [(UriTemplate(item.key), source) for source, snapshot in known for item in _matched(snapshot)]

    # -- looking up ---------------------------------------------------------------------------------------------------

    def by_address(self, uri: str) -> ResourceLocation | None:
        """The resource at an address of ours; its source need not have published what it offers. The scheme is compared
        without case, so that no source's own URI can look like the address of another's."""
        if uri[: len(SCHEME)].lower() != SCHEME:
            return None
        name, _, own_uri = uri[len(SCHEME) :].partition("/")
        source = name if name in self._order else self._by_folded_name.get(name.casefold())
        if source is None or not own_uri:
            return None
        snapshot = self._order[source]
        return self._own_location(source, own_uri) if snapshot is None or _has_resources(snapshot) else None

    def by_uri(self, uri: str) -> ResourceLocation | None:
        """The resource that is listed by this URI."""
        source = self._owners.get(uri)
        return None if source is None else self._own_location(source, uri)

    def by_template_text(self, template: str) -> ResourceLocation | None:
        """The template that is listed by this text."""
        source = self._template_owners.get(template)
        return None if source is None else self._own_location(source, template)

    def _own_location(self, source: str, shown: str) -> ResourceLocation:
        return ResourceLocation(source, self._revealed.get(ResourceLocation(source, shown), shown))

    def by_template(self, uri: str) -> ResourceLocation | None:
        """The URI at the first source with a template that matches it."""
        subject = CandidateUri(uri)
        for template, source in self._templates:
            if template.matches(subject):
                return ResourceLocation(source, uri)
        return None

    def the_only(self, uri: str) -> ResourceLocation | None:
        """The URI at the only source with resources, if there is just one: an unknown URI can only be there."""
        return ResourceLocation(self.sources[0], uri) if len(self.sources) == 1 else None

    # -- building -----------------------------------------------------------------------------------------------------

    def _definitions(
        self, items: Iterable[ItemDefinition], owners: dict[str, str], member: str, hidden: Set[str]
    ) -> Iterable[bytes]:
        for item in items:
            owner = owners.setdefault(item.key, item.source)
            shown_key = reveal(item.key)
            if shown_key != item.key and owners.setdefault(shown_key, item.source) == item.source:
                self._revealed[ResourceLocation(item.source, shown_key)] = item.key
            if item.source in hidden:
                continue
            if owner == item.source and self.by_address(item.key) is None:
                yield item.definition
            else:
                self._displaced.setdefault(item.source, item.key)
                shown = encode(resource_address(ResourceLocation(item.source, shown_key)))
                yield encode_members({**members_of(item.definition, "resource"), member: shown})


def _has_resources(snapshot: Snapshot) -> bool:
    return bool(snapshot.resources or snapshot.templates) or "resources" in server_capabilities(snapshot.capabilities)


def _collision(source: str, uri: str) -> Problem:
    return Problem(
        code=NAME_COLLISION,
        severity="warning",
        message=f"`{source}` has resources whose URIs belong to another server, such as `{reveal(uri)}`",
        hint=f"they are listed as `{SCHEME}{source}/URI`",
        source=source,
    )


def _matched(snapshot: Snapshot) -> Iterable[ItemDefinition]:
    left = _MATCHED_CHARACTERS
    for item in snapshot.templates:
        left -= len(item.key)
        if left < 0:
            return
        yield item
