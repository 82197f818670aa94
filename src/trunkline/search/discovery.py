"""Finding tools and being given them: what `discover_tools`, `provision_tools` and `unprovision_tools` do, for every
door that offers them. Answers are plain JSON."""

from __future__ import annotations

from collections.abc import Callable, Collection
from typing import TYPE_CHECKING, Any, Final

import msgspec
from msgspec import Raw

from trunkline.config.call_arguments import BadArgument
from trunkline.config.settings import GatewaySettings
from trunkline.core.call import Caller
from trunkline.core.names import RESERVED_SOURCE
from trunkline.router.catalog import Catalog, ToolEntry
from trunkline.router.router import Router
from trunkline.search.answers import _MAX_NAMED, _USUAL, Answer, _first
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
from trunkline.search.token_costs import FOUND

if TYPE_CHECKING:
    from trunkline.search.index.corpus import Explanation

MAX_FOUND: Final = 50
MAX_IDS: Final = 200
_MORE: Final = 10
_INSTRUCTIONS: Final = 600
_LONGEST_BUDGET: Final = 100_000_000
_LONGEST_SHOWN: Final = 100
_NOTHING: Final = "nothing was found; say in other words what the tool should do"
_NOTHING_TAGGED: Final = "nothing was found with these tags; search without `tags`, or in other words"
Then = Callable[[Callable[[], Answer]], None]
"""Told how to get the answer, which is the moment where tools are given: not if nobody waits for it any more."""


class Discovery:
    def __init__(self, router: Router, settings: GatewaySettings) -> None:
        self.provisioning = Provisioning(settings.context_tokens)
        self.listing = ClientListing(router, settings, self.provisioning)
        self.execution = Execution(router, self.listing, self.provisioning)
        self.finder = Finder(settings.search, settings.state_dir, self._note)
        self.listing.on_search = self.finder.prepare
        self._router = router
        self.adopt(settings)

    def adopt(self, settings: GatewaySettings) -> None:
        """Be as these settings say from now on; clients whose list changes by that are told."""
        self.provisioning.set_budget(settings.context_tokens)
        self.execution.required = settings.require_provisioning
        self.finder.adopt(settings.search)
        self.listing.adopt(settings)
        self.provisioning.changed()

    async def close(self) -> None:
        await self.finder.close()

    def _note(self, fault: str) -> None:
        self._router.events.note("warning", "search", fault)

    # -- finding --------------------------------------------------------------------------------------------------

    def find(self, caller: Caller, query: str, tags: list[str], then: Callable[[SearchResult], None]) -> None:
        """Every tool that a query is about, best first."""
        self._router.when_listed(lambda: self.finder.search(self._router.views.of(caller), query, tags, then))

    def discover(self, caller: Caller, asked: DiscoverArguments, then: Then) -> None:
        """`then` may be called before this returns. Raises BadArgument."""
        query, tags = asked.query.strip(), several(asked.tags)
        if not query and not tags:
            raise BadArgument("`query` is missing", "some words about what the tool should do")
        self.provisioning.seen_by(caller, asked.session)  # a bad handle is refused before anything is done
        self.find(caller, query, tags, lambda found: then(lambda: self._discovered(caller, asked, found)))

    def _discovered(self, caller: Caller, asked: DiscoverArguments, found: SearchResult) -> Answer:
        held = self._held(caller, asked.session)
        provision = asked.provision is not False
        limit = bounded(asked.limit, FOUND, MAX_FOUND)
        picked, left_out = self._fitting(found.entries[:limit], _room(held, asked), held.asked if provision else ())
        before = held.version
        for entry in reversed(picked) if provision else ():
            held.find(entry.tool.address, self.listing.costs.of(entry))
        if held.version != before:
            self.provisioning.changed()
        answer: Answer = {"tools": [self._described(entry) for entry in picked], "provisioned": provision}
        if asked.explain:
            _explain(answer["tools"], picked, found)
        more = found.entries[limit : limit + _MORE]
        if not found.entries:
            answer["hint"] = _NOTHING_TAGGED if asked.tags else _NOTHING
        if left_out:
            answer["left_out"] = left_out
        if more:
            answer["more"] = [entry.public_name for entry in more]
        about = self._about(caller, asked.session, held, picked)
        if about:
            answer["servers"] = about
        return answer | self._used(held) | not_ready(self._router)

    def _held(self, caller: Caller, handle: str | None) -> ProvisionedTools:
        """What this caller holds. Tools that are there no more are in nobody's way."""
        held = self.provisioning.of(caller, handle)
        catalog = self._router.views.of(caller)
        for address in [address for address in held.asked if catalog.find(address) is None]:
            held.is_gone(address)
        return held

    def _fitting(
        self, entries: list[ToolEntry], room: int, paid: Collection[str]
    ) -> tuple[list[ToolEntry], list[Answer]]:
        """Those that there is room for, and the others; `paid` ones have theirs already."""
        picked: list[ToolEntry] = []
        left_out: list[Answer] = []
        left = room
        for entry in entries:
            tokens = 0 if entry.tool.address in paid else self.listing.costs.of(entry)
            if tokens <= max(left, 0):
                picked.append(entry)
                left -= tokens
            else:
                left_out.append(_refusal(entry.public_name, tokens, left))
        return picked, left_out

    def _described(self, entry: ToolEntry) -> Answer:
        facts = parse_definition(entry.tool)
        described: Answer = {"tool_id": entry.public_name, "description": facts.description or facts.title}
        if facts.input_schema.startswith(b"{"):
            described["inputSchema"] = Raw(msgspec.json.format(facts.input_schema, indent=-1))  # blanks cost tokens
        if facts.read_only:
            described["read_only"] = True
        return described

    def _about(
        self, caller: Caller, handle: str | None, held: ProvisionedTools, entries: list[ToolEntry]
    ) -> dict[str, str]:
        """What servers say of themselves: a list of all tools would have come with it. Once to each session; who has
        none may be another each time, and has heard of nothing."""
        catalog = self._router.views.of(caller)
        told = held.told_of if caller.session is not None or handle else ()
        about: dict[str, str] = {}
        for server in dict.fromkeys(entry.source for entry in entries if entry.source not in told):
            offer = catalog.snapshot(server)
            if offer is not None and offer.instructions.strip():
                about[server] = shortened(" ".join(offer.instructions.split()), _INSTRUCTIONS)
        held.told_of.update(about)
        return about

    # -- being given ----------------------------------------------------------------------------------------------

    def provision(self, caller: Caller, asked: ProvisionArguments) -> Answer:
        """Raises BadArgument."""
        ids = _ids(asked.tool_ids)
        if asked.context_tokens is not None and not 0 < asked.context_tokens <= _LONGEST_BUDGET:
            raise BadArgument("`context_tokens` must be a positive number of tokens")
        held = self._held(caller, asked.session)
        before = held.version
        if asked.context_tokens is not None:
            held.chose_budget = True
            held.set_budget(asked.context_tokens)
        given: list[Answer] = []
        refused: list[Answer] = []
        catalog = self._router.views.of(caller)
        for name in ids:
            self._give(catalog, held, name, given, refused)
        if held.version != before:
            self.provisioning.changed()
        answer: Answer = {"provisioned": given}
        if refused:
            answer["refused"] = refused
        return answer | self._used(held)

    def _give(
        self, catalog: Catalog, held: ProvisionedTools, name: str, given: list[Answer], refused: list[Answer]
    ) -> None:
        entry = _offered(catalog, name)
        if entry is None:
            refused.append(
                {"tool_id": name[:_LONGEST_SHOWN], "why": "no such tool; `discover_tools` finds those there are"}
            )
            return
        tokens = self.listing.costs.of(entry)
        if held.ask_for(entry.tool.address, tokens):
            given.append({"tool_id": entry.public_name, "tokens": tokens})
        else:
            refused.append(_refusal(entry.public_name, tokens, held.room))

    def unprovision(self, caller: Caller, asked: UnprovisionArguments) -> Answer:
        """Raises BadArgument."""
        ids = _ids(asked.tool_ids)
        held = self.provisioning.of(caller, asked.session)
        before = held.version
        catalog = self._router.views.of(caller)
        removed: list[str] = []
        unknown: list[str] = []
        for name in ids:
            entry = _offered(catalog, name)
            taken = held.take_back(name if entry is None else entry.tool.address)
            (removed if taken else unknown).append(name[:_LONGEST_SHOWN])
        if held.version != before:
            self.provisioning.changed()
        answer: Answer = {"removed": removed}
        if unknown:
            answer["unknown"] = unknown
        return answer | self._used(held)

    def _used(self, held: ProvisionedTools) -> dict[str, Any]:
        return {"tokens": held.tokens, "budget": held.budget}


def _room(held: ProvisionedTools, asked: DiscoverArguments) -> int:
    """What is found has to fit; reasons are for people, who have the room."""
    if asked.provision is not False:
        return held.room
    return _LONGEST_BUDGET if asked.explain else held.budget


def _explain(described: list[Answer], entries: list[ToolEntry], found: SearchResult) -> None:
    """Say of each tool why it was found."""
    hits = {entry.tool.address: hit for entry, hit in zip(found.entries, found.hits, strict=True)}
    for tool, entry in zip(described, entries, strict=True):
        tool["why"] = match_reasons(found.explain(hits[entry.tool.address]))


def _offered(catalog: Catalog, name: str) -> ToolEntry | None:
    entry = catalog.find(name)
    return None if entry is None or entry.source == RESERVED_SOURCE else entry


def _ids(tool_ids: list[str] | str) -> list[str]:
    ids = list(dict.fromkeys(several(tool_ids)))
    if not ids:
        raise BadArgument("`tool_ids` is empty", "the ids that `discover_tools` gives")
    if len(ids) > MAX_IDS:
        raise BadArgument(f"`tool_ids` has more than {MAX_IDS} entries")
    return ids


def _refusal(name: str, tokens: int, left: int) -> Answer:
    ways = "`unprovision_tools` or a higher `context_tokens` of `provision_tools` makes room"
    return {"tool_id": name, "tokens": tokens, "why": f"needs {tokens} tokens and {max(left, 0)} are left; {ways}"}


def not_ready(router: Router, server: str | None = None) -> Answer:
    """Servers whose tools may be missing from an answer."""
    states = (
        (name, admission.health.state)
        for name, admission in router.registry.servers().items()
        if server in (None, name)
    )
    unwell = tuple(f"{name}: {state}" for name, state in states if state not in _USUAL)
    return {"notReady": _first(unwell, _MAX_NAMED)} if unwell else {}


def match_reasons(explanation: Explanation) -> Answer:
    """Why a tool was found. The shares of its words add up to 1."""
    whole = sum(added for _, _, added in explanation.words) or 1.0
    words = [{"word": word, "field": field, "share": added / whole} for word, field, added in explanation.words]
    why: Answer = {"words": words, "cosine": explanation.cosine, "score": explanation.score}
    return why | {"named": True} if explanation.named else why
