"""What a client is told of all servers together: what they say and can do, how long a list holds, and what it lacks."""

from __future__ import annotations

from collections.abc import Iterator
from time import monotonic
from typing import Final, NamedTuple

import msgspec

from trunkline.core.call import Caller
from trunkline.core.names import RESERVED_SOURCE
from trunkline.core.tool import Freshness, ListName, Snapshot
from trunkline.protocol.mcp.capabilities import (
    LegacyTasks,
    announces_changes,
    legacy_tasks,
    server_capabilities,
    server_extensions,
)
from trunkline.protocol.mcp.versions import MODERN, WITH_LEGACY_TASKS
from trunkline.router.admission import Admission
from trunkline.router.registry import SourceRegistry

INCOMPLETE: Final = "trunkline/incomplete"
"""The member of a list's `_meta` that says which servers it does not show as they are now."""
_LONGEST_INSTRUCTIONS: Final = 16 * 1024
_LONGEST_NAMES: Final = 1000
_LONGEST_ALONE: Final = 64 * 1024
_ABILITY: Final[dict[ListName, str]] = {
    "tools": "tools",
    "prompts": "prompts",
    "resources": "resources",
    "templates": "resources",
}
_WELL: Final = ("ready", "degraded")
_UNKNOWN: Final = Freshness()


class ListCacheHints(NamedTuple):
    """How long a list holds from now, and whether it may be shared between those who ask."""

    ttl_ms: int
    public: bool


# -- instructions and extensions --------------------------------------------------------------------------------------


def joined_instructions(registry: SourceRegistry, caller: Caller) -> str:
    """What servers say of themselves: one server's as it is, several with a heading each, and not without end."""
    offers = _shown(registry, caller)
    told = [(source, offer.instructions) for source, offer in offers if offer.instructions.strip()]
    if len(registry.servers()) == 1 and told:
        return _cut(told[0][1], _LONGEST_ALONE)
    share = _fair_share([_size(text.strip()) for _, text in told])
    return "\n\n".join(f"## {source}\n\n{_cut(text.strip(), share)}" for source, text in told)


def searching_instructions(registry: SourceRegistry, caller: Caller) -> str:
    """For a client that is not shown the tools themselves: where they come from, and how to get at them."""
    names = ", ".join(source for source, offer in _shown(registry, caller) if offer.tools)
    shown = names if len(names) <= _LONGEST_NAMES else f"{names[:_LONGEST_NAMES].rsplit(', ', 1)[0]} and others"
    return f"Tools of these servers are found with discover_tools: {shown}" if shown else ""


def _size(text: str) -> int:
    return len(text.encode("utf-8", "replace"))


def _fair_share(sizes: list[int]) -> int:
    """How much each may say: what the brief ones leave goes to the others."""
    left, others = _LONGEST_INSTRUCTIONS, len(sizes)
    for size in sorted(sizes):
        if size > left // others:
            return left // others
        left, others = left - size, others - 1
    return _LONGEST_INSTRUCTIONS


def _cut(text: str, limit_bytes: int) -> str:
    encoded = text.encode("utf-8", "replace")
    if len(encoded) <= limit_bytes:
        return text
    kept = encoded[:limit_bytes].decode("utf-8", "ignore")
    return f"{kept}\n[cut by the gateway: {len(encoded) - limit_bytes} bytes more]"


def joined_extensions(registry: SourceRegistry, caller: Caller) -> dict[str, msgspec.Raw]:
    """The extensions of all modern servers; the first in the order of the file says how one is set."""
    joined: dict[str, msgspec.Raw] = {}
    for _, offer in _shown(registry, caller):
        if offer.protocol_version in MODERN:
            for name, settings in server_extensions(offer.capabilities).items():
                joined.setdefault(name, settings)
    return joined


def joined_tasks(registry: SourceRegistry, caller: Caller) -> dict[str, object]:
    """The tasks of 2025-11-25, where a server runs tools that way, or may yet say so; empty where none does. Nobody
    lists them: whose they are is in their ids, and only their clients have those."""
    offers = [offer for _, offer in _shown(registry, caller) if offer.protocol_version == WITH_LEGACY_TASKS]
    running = [tasks for tasks in (legacy_tasks(offer.capabilities) for offer in offers) if tasks.run_tools]
    if _may_still_say(registry):
        running.append(LegacyTasks(run_tools=True, cancel=True))
    if not running:
        return {}
    joined: dict[str, object] = {"requests": {"tools": {"call": {}}}}
    if any(tasks.cancel for tasks in running):
        joined["cancel"] = {}
    return joined


def _may_still_say(registry: SourceRegistry) -> bool:
    """Whether a server starts that nobody knows yet. A greeting cannot be taken back, nor added to."""
    unknown = [
        admission for source, admission in registry.servers().items() if registry.catalog.snapshot(source) is None
    ]
    return any(admission.health.state == "starting" for admission in unknown)


def _shown(registry: SourceRegistry, caller: Caller) -> Iterator[tuple[str, Snapshot]]:
    """What the servers that are in this caller's lists offer, in the order of the file."""
    view = registry.views.of(caller)
    for source in registry.servers():
        offer = view.snapshot(source)
        if offer is not None and not view.is_hidden(source):
            yield source, offer


# -- lists ------------------------------------------------------------------------------------------------------------


def list_cache_hints(registry: SourceRegistry, caller: Caller, kind: ListName) -> ListCacheHints:
    """As long as every part of the list holds. Nothing is promised while a server is missing or did not say."""
    parts = [(source, offer) for source, offer in _shown(registry, caller) if _has(offer, kind)]
    if not parts or registry.views.of(caller) is not registry.catalog or incomplete_sources(registry):
        return ListCacheHints(0, public=False)
    now = monotonic()
    fresh = [offer.freshness.get(kind, _UNKNOWN) for _, offer in parts]
    ttl_ms = min(int(part.ttl_ms - (now - part.since) * 1000) for part in fresh)
    return ListCacheHints(max(0, ttl_ms), public=all(part.public for part in fresh))


def _has(offer: Snapshot, kind: ListName) -> bool:
    return bool(getattr(offer, kind)) or _ABILITY[kind] in server_capabilities(offer.capabilities)


def incomplete_sources(registry: SourceRegistry) -> list[dict[str, object]]:
    """The servers that lists do not show as they are now, for `_meta`; `stale` where an older list of one is shown."""
    return [
        _missing(
            admission, stale=registry.catalog.snapshot(source) is not None and not registry.catalog.is_hidden(source)
        )
        for source, admission in registry.servers().items()
        if admission.health.state not in (*_WELL, "disabled") or _is_silent(registry, source, admission)
    ]


def _is_silent(registry: SourceRegistry, source: str, admission: Admission) -> bool:
    return admission.health.state in _WELL and registry.catalog.snapshot(source) is None


def _missing(admission: Admission, *, stale: bool) -> dict[str, object]:
    health = admission.health
    said: dict[str, object] = {"server": admission.name, "state": health.state, "stale": stale}
    reason = health.reason or health.last_error
    return said | ({"reason": reason} if reason else {})


def refresh_lists(registry: SourceRegistry, kind: ListName) -> None:
    """Ask those servers again that would not say by themselves when a list changes, or whose word has run out."""
    now = monotonic()
    for source, admission in registry.admissions.items():
        offer = registry.catalog.snapshot(source)
        if source == RESERVED_SOURCE or offer is None or admission.health.state not in _WELL or not _has(offer, kind):
            continue
        if _is_old(offer, kind, now):
            admission.source.refresh()  # which knows best how often its server may be asked


def _is_old(offer: Snapshot, kind: ListName, now: float) -> bool:
    said = offer.freshness.get(kind, _UNKNOWN)
    if said.ttl_ms == 0 and announces_changes(offer.capabilities, _ABILITY[kind]):
        return False
    return now >= said.since + said.ttl_ms / 1000
