"""What `discover_tools`, `provision_tools` and `unprovision_tools` do and answer, whichever frontend offers them."""

from __future__ import annotations

from collections.abc import Callable, Collection
from typing import TYPE_CHECKING, Any, Final

import msgspec
from msgspec import Raw

from trunkline.config.call_arguments import InvalidArguments
from trunkline.config.settings import GatewaySettings
from trunkline.core.call import Caller
from trunkline.core.names import RESERVED_SOURCE
from trunkline.router.catalog import Catalog, ToolEntry, says_read_only
from trunkline.router.router import Router
from trunkline.search.definitions import parse_definition, shortened
from trunkline.search.execution import Execution
from trunkline.search.finder import Finder, SearchResult
from trunkline.search.listing import ClientListing
from trunkline.search.own_tool_definitions import (
    DiscoverArguments,
    ProvisionArguments,
    UnprovisionArguments,
    bounded,
    several,
)
from trunkline.search.provisioning import ProvisionedTools, Provisioning
from trunkline.search.token_costs import DEFAULT_LIMIT

if TYPE_CHECKING:
    from trunkline.search.index.ranking import MatchExplanation

MAX_FOUND: Final = 50
MAX_IDS: Final = 200
MAX_NAMED: Final = 50
_MORE: Final = 10
_INSTRUCTIONS: Final = 600
_LARGEST_BUDGET: Final = 100_000_000
_LONGEST_SHOWN: Final = 100
_USUAL_STATES: Final = ("ready", "degraded", "disabled")
_NOTHING: Final = "nothing was found; describe in other words what the tool should do"
_NOTHING_TAGGED: Final = "nothing was found with these tags; search without `tags`, or in other words"
JsonObject = dict[str, Any]
OnAnswer = Callable[[Callable[[], JsonObject]], None]
"""Called with a function that makes the answer. Tools are provisioned by calling it, so nobody calls it once nobody
waits for the answer any more."""


class Discovery:
    """Finds tools for callers and provisions them, with everything that this takes."""

    def __init__(self, router: Router, settings: GatewaySettings) -> None:
        def note(fault: str) -> None:
            router.events.note("warning", "search", fault)

        self.provisioning = Provisioning(settings.context_tokens)
        self.listing = ClientListing(router, settings, self.provisioning)
        self.execution = Execution(router, self.listing, self.provisioning)
        self.finder = Finder(settings.search, settings.state_dir, note)
        self.listing.on_search = self.finder.prepare
        self._router = router
        self.adopt(settings)

    def adopt(self, settings: GatewaySettings) -> None:
        """Apply changed settings; clients whose list changes are notified."""
        self.provisioning.set_budget(settings.context_tokens)
        self.execution.required = settings.require_provisioning
        self.finder.adopt(settings.search)
        self.listing.adopt(settings)
        self.provisioning.changed()

    async def close(self) -> None:
        await self.finder.close()

    # -- finding --------------------------------------------------------------------------------------------------

    def find(self, caller: Caller, query: str, tags: list[str], then: Callable[[SearchResult], None]) -> None:
        """Find every tool that matches a query, best first."""
        self._router.when_published(lambda: self.finder.search(self._router.views.of(caller), query, tags, then))

    def discover(self, caller: Caller, arguments: DiscoverArguments, then: OnAnswer) -> None:
        """`then` may be called before this returns. Raises InvalidArguments."""
        query, tags = arguments.query.strip(), several(arguments.tags)
        if not query and not tags:
            raise InvalidArguments("`query` is missing", "some words about what the tool should do")
        self.provisioning.existing(caller, arguments.session)  # a bad handle is refused before anything is done
        self.find(caller, query, tags, lambda found: then(lambda: self._discovered(caller, arguments, found)))

    def _discovered(self, caller: Caller, arguments: DiscoverArguments, found: SearchResult) -> JsonObject:
        held = self._held(caller, arguments.session)
        provision = arguments.provision is not False
        limit = bounded(arguments.limit, DEFAULT_LIMIT, MAX_FOUND)
        # What is found has to fit, except where it is only explained: that is for people, who have the room.
        room = held.room if provision else _LARGEST_BUDGET if arguments.explain else held.budget
        picked, left_out = self._fitting(found.entries[:limit], room, held.requested if provision else ())
        before = held.version
        for entry in reversed(picked) if provision else ():
            held.add_found(entry.tool.address, self.listing.costs.of(entry))
        if held.version != before:
            self.provisioning.changed()
        answer: JsonObject = {"tools": [_described(entry) for entry in picked], "provisioned": provision}
        if arguments.explain:
            hits = {entry.tool.address: hit for entry, hit in zip(found.entries, found.hits, strict=True)}
            for tool, entry in zip(answer["tools"], picked, strict=True):
                tool["why"] = match_reasons(found.explain(hits[entry.tool.address]))
        more = found.entries[limit : limit + _MORE]
        if not found.entries:
            answer["hint"] = _NOTHING_TAGGED if arguments.tags else _NOTHING
        if left_out:
            answer["left_out"] = left_out
        if more:
            answer["more"] = [entry.public_name for entry in more]
        about = self._about(caller, arguments.session, held, picked)
        if about:
            answer["servers"] = about
        return answer | {"tokens": held.tokens, "budget": held.budget} | not_ready(self._router)

    def _held(self, caller: Caller, handle: str | None) -> ProvisionedTools:
        """The caller's provisioned tools; those that their servers no longer offer make room when it is needed."""
        held = self.provisioning.of(caller, handle)
        catalog = self._router.views.of(caller)
        for address in [address for address in held.requested if catalog.find(address) is None]:
            held.demote(address)
        return held

    def _fitting(
        self, entries: list[ToolEntry], room: int, paid: Collection[str]
    ) -> tuple[list[ToolEntry], list[JsonObject]]:
        """The tools that there is room for, and the others with the reason; `paid` ones have their room already."""
        picked: list[ToolEntry] = []
        left_out: list[JsonObject] = []
        for entry in entries:
            tokens = 0 if entry.tool.address in paid else self.listing.costs.of(entry)
            if tokens <= max(room, 0):
                picked.append(entry)
                room -= tokens
            else:
                left_out.append(_refusal(entry.public_name, tokens, room))
        return picked, left_out

    def _about(
        self, caller: Caller, handle: str | None, held: ProvisionedTools, entries: list[ToolEntry]
    ) -> dict[str, str]:
        """The servers' instructions, which a client with the whole list gets when it connects: once to each session.
        A caller without a session may be another one each time, so it gets them every time."""
        catalog = self._router.views.of(caller)
        described = held.described_servers if caller.session is not None or handle else ()
        about: dict[str, str] = {}
        for server in dict.fromkeys(entry.source for entry in entries if entry.source not in described):
            snapshot = catalog.snapshot(server)
            if snapshot is not None and snapshot.instructions.strip():
                about[server] = shortened(" ".join(snapshot.instructions.split()), _INSTRUCTIONS)
        held.described_servers.update(about)
        return about

    # -- provisioning ---------------------------------------------------------------------------------------------

    def provision(self, caller: Caller, arguments: ProvisionArguments) -> JsonObject:
        """Add tools to the session's list by their ids, and set its budget. Raises InvalidArguments."""
        ids = _ids(arguments.tool_ids)
        if arguments.context_tokens is not None and not 0 < arguments.context_tokens <= _LARGEST_BUDGET:
            raise InvalidArguments("`context_tokens` must be a positive number of tokens")
        held = self._held(caller, arguments.session)
        before = held.version
        if arguments.context_tokens is not None:
            held.chose_budget = True
            held.set_budget(arguments.context_tokens)
        given: list[JsonObject] = []
        refused: list[JsonObject] = []
        catalog = self._router.views.of(caller)
        for name in ids:
            entry = _find(catalog, name)
            if entry is None:
                why = "no such tool; `discover_tools` finds those there are"
                refused.append({"tool_id": name[:_LONGEST_SHOWN], "why": why})
                continue
            tokens = self.listing.costs.of(entry)
            if held.add_requested(entry.tool.address, tokens):
                given.append({"tool_id": entry.public_name, "tokens": tokens})
            else:
                refused.append(_refusal(entry.public_name, tokens, held.room))
        if held.version != before:
            self.provisioning.changed()
        answer: JsonObject = {"provisioned": given}
        if refused:
            answer["refused"] = refused
        return answer | {"tokens": held.tokens, "budget": held.budget}

    def unprovision(self, caller: Caller, arguments: UnprovisionArguments) -> JsonObject:
        """Remove tools from the session's list by their ids. Raises InvalidArguments."""
        ids = _ids(arguments.tool_ids)
        held = self.provisioning.of(caller, arguments.session)
        before = held.version
        catalog = self._router.views.of(caller)
        removed: list[str] = []
        unknown: list[str] = []
        for name in ids:
            entry = _find(catalog, name)
            taken = held.remove(name if entry is None else entry.tool.address)
            (removed if taken else unknown).append(name[:_LONGEST_SHOWN])
        if held.version != before:
            self.provisioning.changed()
        answer: JsonObject = {"removed": removed}
        if unknown:
            answer["unknown"] = unknown
        return answer | {"tokens": held.tokens, "budget": held.budget}


def _described(entry: ToolEntry) -> JsonObject:
    definition = parse_definition(entry.tool)
    described: JsonObject = {"tool_id": entry.public_name, "description": definition.description or definition.title}
    if definition.input_schema.startswith(b"{"):
        described["inputSchema"] = Raw(msgspec.json.format(definition.input_schema, indent=-1))  # blanks cost tokens
    if says_read_only(entry.tool.definition):
        described["read_only"] = True
    return described


def _find(catalog: Catalog, name: str) -> ToolEntry | None:
    entry = catalog.find(name)
    return None if entry is None or entry.source == RESERVED_SOURCE else entry


def _ids(tool_ids: list[str] | str) -> list[str]:
    ids = list(dict.fromkeys(several(tool_ids)))
    if not ids:
        raise InvalidArguments("`tool_ids` is empty", "the ids that `discover_tools` gives")
    if len(ids) > MAX_IDS:
        raise InvalidArguments(f"`tool_ids` has more than {MAX_IDS} entries")
    return ids


def _refusal(name: str, tokens: int, left: int) -> JsonObject:
    ways = "`unprovision_tools` or a higher `context_tokens` of `provision_tools` makes room"
    return {"tool_id": name, "tokens": tokens, "why": f"needs {tokens} tokens and {max(left, 0)} are left; {ways}"}


def first_of(texts: tuple[str, ...], limit: int) -> tuple[str, ...]:
    more = len(texts) - limit
    return (*texts[:limit], f"… and {more} more") if more > 0 else texts


def not_ready(router: Router, server: str | None = None) -> JsonObject:
    """Servers whose tools may be missing from an answer."""
    states = (
        (name, admission.health.state)
        for name, admission in router.registry.servers().items()
        if server in (None, name)
    )
    missing = tuple(f"{name}: {state}" for name, state in states if state not in _USUAL_STATES)
    return {"notReady": first_of(missing, MAX_NAMED)} if missing else {}


def match_reasons(explanation: MatchExplanation) -> JsonObject:
    """Why a tool was found. The shares of its words add up to 1."""
    whole = sum(added for _, _, added in explanation.words) or 1.0
    words = [{"word": word, "field": field, "share": added / whole} for word, field, added in explanation.words]
    why: JsonObject = {"words": words, "cosine": explanation.cosine, "score": explanation.score}
    return why | {"named": True} if explanation.named else why
