"""Whose a URI is for one caller: listed, given in a result, or fitting a template.

Servers give URIs in results that no list has. Where several servers have resources, or may turn out to have some, each
principal's are remembered here with the server that gave them; one that would lead to another server is shown as an
address of its own.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Mapping
from typing import Final

from trunkline.core.call import Caller
from trunkline.router.content_uris import map_uris
from trunkline.router.resources import Place, Resources, address
from trunkline.router.views import Views

_MOST_PRINCIPALS: Final = 1000
_MOST_URIS: Final = 2000
_LONGEST_URI: Final = 2048
_AS_IT_IS: Final[Mapping[str, str]] = {}


class Links:
    """`learn` and `shown` take what a server gave to a caller, `resolve` what a caller asks for."""

    def __init__(self, views: Views) -> None:
        self._views = views
        self._given: OrderedDict[str, OrderedDict[str, str]] = OrderedDict()

    def resolve(self, caller: Caller, uri: str) -> Place | None:
        """Where this URI leads: an address, a listed URI, one that was given in a result, or one of a template."""
        resources = self._views.of(caller).resources
        return (
            resources.by_address(uri)
            or resources.by_uri(uri)
            or self._by_memory(caller.principal, uri, resources)
            or resources.by_template(uri)
        )

    def resolve_or_guess(self, caller: Caller, uri: str) -> Place | None:
        """The same, and for a URI that left no trace the only server that has resources."""
        return self.resolve(caller, uri) or self._views.of(caller).resources.the_only(uri)

    def resolve_template(self, caller: Caller, reference: str) -> Place | None:
        """The same for a reference that may be the text of a template."""
        resources = self._views.of(caller).resources
        return resources.by_template_text(reference) or self.resolve_or_guess(caller, reference)

    def shown(self, caller: Caller, source: str, uri: str) -> str:
        """What the caller shall call a URI that this server gave it; remembered where nothing else says so."""
        if not self._views.of(caller).resources.several:
            return uri
        place = Place(source, uri)
        leads_to = self.resolve(caller, uri)
        if leads_to is None and len(uri) <= _LONGEST_URI:
            self._remember(caller.principal, place)
            return uri
        return uri if leads_to == place else address(place)

    def learn(self, caller: Caller, source: str, raw: bytes, renamed: Mapping[str, str] = _AS_IT_IS) -> bytes:
        """A result with the URIs that its caller can use; the same object where all are as they should be.

        `renamed` are URIs that the caller knows under another name: those that it asked for.
        """
        return map_uris(raw, lambda uri: renamed.get(uri) or self.shown(caller, source, uri))

    # -- memory ---------------------------------------------------------------------------------------------------

    def _by_memory(self, principal: str, uri: str, resources: Resources) -> Place | None:
        given = self._given.get(principal)
        source = given.get(uri) if given is not None else None
        if given is None or source is None:
            return None
        if source not in resources.sources:
            del given[uri]
            return None
        given.move_to_end(uri)
        return Place(source, uri)

    def _remember(self, principal: str, place: Place) -> None:
        given = self._given.setdefault(principal, OrderedDict())
        self._given.move_to_end(principal)
        given[place.uri] = place.source
        if len(given) > _MOST_URIS:
            given.popitem(last=False)
        if len(self._given) > _MOST_PRINCIPALS:
            self._given.popitem(last=False)
