"""The resources of all servers: which URI is whose, and the addresses of those whose URI another server holds.

The first server in the order of the file keeps a URI. Whoever comes later is listed as `trunkline://SERVER/URI`, which
is accepted for every resource.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Set
from typing import Final, NamedTuple

from trunkline.core.errors import NAME_COLLISION, Problem
from trunkline.core.hidden_text import reveal
from trunkline.core.tool import Item, Snapshot
from trunkline.protocol.jsonrpc import encode, encode_members, members_of
from trunkline.protocol.mcp.capabilities import server_capabilities
from trunkline.protocol.uri_template import Subject, UriTemplate

SCHEME: Final = "trunkline://"
_MATCHED_CHARACTERS: Final = 32 * 1024
"""Of each server's templates, this much is tried on URIs; matching takes up to half a microsecond for each."""


class ResourceLocation(NamedTuple):
    """A server, and its own URI (or URI template) there."""

    source: str
    uri: str


def resource_address(place: ResourceLocation) -> str:
    return f"{SCHEME}{place.source}/{place.uri}"


class Resources:
    """What one version of the catalog has in resources and in templates of them."""

    def __init__(self, order: Iterable[str], snapshots: Mapping[str, Snapshot], hidden: Set[str]) -> None:
        self._order = {source: snapshots.get(source) for source in order}
        self._by_folded_name = {source.casefold(): source for source in reversed(self._order)}
        self.sources = tuple(source for source, offer in self._order.items() if offer and _has_resources(offer))
        """Those that have resources at all, listed or not, in the order of the file."""
        unheard = sum(offer is None for offer in self._order.values())
        self.several = len(self.sources) + unheard > 1
        """Whether a URI alone may not say whose it is, once all servers have said what they offer."""
        self._owners: dict[str, str] = {}
        self._template_owners: dict[str, str] = {}
        self._displaced: dict[str, str] = {}
        self._hidden_in: dict[ResourceLocation, str] = {}
        """What a source's own URI is that is listed with its hidden characters shown."""
        known = [(source, offer) for source, offer in self._order.items() if offer is not None]
        resources = [item for _, offer in known for item in offer.resources]
        templates = [item for _, offer in known for item in offer.templates]
        self.listing = b"[%b]" % b",".join(self._definitions(resources, self._owners, "uri", hidden))
        """`resources/list`'s array."""
        listed = self._definitions(templates, self._template_owners, "uriTemplate", hidden)
        self.template_listing = b"[%b]" % b",".join(listed)
        """`resources/templates/list`'s array."""
        self.collisions = tuple(_collision(source, uri) for source, uri in self._displaced.items())
        self._templates = [(UriTemplate(item.key), source) for source, offer in known for item in _matched(offer)]

    # -- whose a URI is -------------------------------------------------------------------------------------------

    def by_address(self, uri: str) -> ResourceLocation | None:
        """The place that an address of ours names; its server need not have said yet what it offers.

        The case of a scheme means nothing: no server's own URI shall look like the address of another's.
        """
        if uri[: len(SCHEME)].lower() != SCHEME:
            return None
        name, _, own_uri = uri[len(SCHEME) :].partition("/")
        source = name if name in self._order else self._by_folded_name.get(name.casefold())
        if source is None or not own_uri:
            return None
        offer = self._order[source]
        own_uri = self._hidden_in.get(ResourceLocation(source, own_uri), own_uri)
        return ResourceLocation(source, own_uri) if offer is None or _has_resources(offer) else None

    def by_uri(self, uri: str) -> ResourceLocation | None:
        """The server that lists exactly this URI."""
        source = self._owners.get(uri)
        return (
            None
            if source is None
            else ResourceLocation(source, self._hidden_in.get(ResourceLocation(source, uri), uri))
        )

    def by_template_text(self, template: str) -> ResourceLocation | None:
        """The server that lists exactly this template."""
        source = self._template_owners.get(template)
        return (
            None
            if source is None
            else ResourceLocation(source, self._hidden_in.get(ResourceLocation(source, template), template))
        )

    def by_template(self, uri: str) -> ResourceLocation | None:
        """The first server with a template that this URI can be an expansion of."""
        subject = Subject(uri)
        for template, source in self._templates:
            if template.matches(subject):
                return ResourceLocation(source, uri)
        return None

    def the_only(self, uri: str) -> ResourceLocation | None:
        """Where a URI must be that nobody has ever named, if it is anywhere: at the only server with resources."""
        return ResourceLocation(self.sources[0], uri) if len(self.sources) == 1 else None

    # -- building -------------------------------------------------------------------------------------------------

    def _definitions(
        self, items: Iterable[Item], owners: dict[str, str], member: str, hidden: Set[str]
    ) -> Iterable[bytes]:
        for item in items:
            owner = owners.setdefault(item.key, item.source)
            shown_key = reveal(item.key)
            if shown_key != item.key and owners.setdefault(shown_key, item.source) == item.source:
                self._hidden_in[ResourceLocation(item.source, shown_key)] = item.key
            if item.source in hidden:
                continue
            if owner == item.source and self.by_address(item.key) is None:
                yield item.definition
            else:
                self._displaced.setdefault(item.source, item.key)
                shown = encode(resource_address(ResourceLocation(item.source, shown_key)))
                yield encode_members({**members_of(item.definition, "resource"), member: shown})


def _has_resources(offer: Snapshot) -> bool:
    return bool(offer.resources or offer.templates) or "resources" in server_capabilities(offer.capabilities)


def _collision(source: str, uri: str) -> Problem:
    return Problem(
        code=NAME_COLLISION,
        severity="warning",
        message=f"`{source}` has resources whose URIs another server holds, such as `{reveal(uri)}`",
        hint=f"they are listed as `{SCHEME}{source}/URI`",
        source=source,
    )


def _matched(offer: Snapshot) -> Iterable[Item]:
    left = _MATCHED_CHARACTERS
    for item in offer.templates:
        left -= len(item.key)
        if left < 0:
            return
        yield item
