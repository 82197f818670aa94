"""What a client is told about all sources together: instructions, extensions, tasks, completeness and age of lists."""

from __future__ import annotations

from collections.abc import Iterator
from time import monotonic
from typing import Final, NamedTuple

import msgspec

from trunkline.core.call import Caller
from trunkline.core.names import RESERVED_SOURCE
from trunkline.core.source import SERVING
from trunkline.core.tool import Freshness, ListName, Snapshot
from trunkline.protocol.mcp.capabilities import (
    LegacyTasks,
    announces_changes,
    legacy_tasks,
    server_capabilities,
    server_extensions,
)
from trunkline.protocol.mcp.versions import MODERN, WITH_LEGACY_TASKS
from trunkline.router.registry import SourceRegistry

INCOMPLETE: Final = "trunkline/incomplete"
"""The member of a list's `_meta` that names the servers whose part is missing or out of date."""
_MAX_INSTRUCTIONS_BYTES: Final = 16 * 1024
_MAX_NAMES_CHARACTERS: Final = 1000
_MAX_BYTES_OF_ONE_SERVER: Final = 64 * 1024
_UNKNOWN: Final = Freshness()


class ListCacheHints(NamedTuple):
    """How long a list may be cached from now, and whether it may be shared between callers."""

    ttl_ms: int
    public: bool


# -- instructions and extensions --------------------------------------------------------------------------------------


def joined_instructions(registry: SourceRegistry, caller: Caller) -> str:
    """The instructions of all servers: one server's as they are, several with a heading each, up to a limit."""
    snapshots = _shown(registry, caller)
    texts = [(source, snapshot.instructions) for source, snapshot in snapshots if snapshot.instructions.strip()]
    if len(registry.servers()) == 1 and texts:
        return _cut(texts[0][1], _MAX_BYTES_OF_ONE_SERVER)
    share = _fair_share([len(text.strip().encode("utf-8", "replace")) for _, text in texts])
    return "\n\n".join(f"## {source}\n\n{_cut(text.strip(), share)}" for source, text in texts)


def searching_instructions(registry: SourceRegistry, caller: Caller) -> str:
    """Instructions for a client that searches for tools instead of listing them."""
    names = ", ".join(source for source, snapshot in _shown(registry, caller) if snapshot.tools)
    if len(names) > _MAX_NAMES_CHARACTERS:
        names = f"{names[:_MAX_NAMES_CHARACTERS].rsplit(', ', 1)[0]} and others"
    return f"Use discover_tools to find the tools of these servers: {names}" if names else ""


def _fair_share(sizes: list[int]) -> int:
    """The limit for each text: what short ones do not need goes to the others."""
    left, others = _MAX_INSTRUCTIONS_BYTES, len(sizes)
    for size in sorted(sizes):
        if size > left // others:
            return left // others
        left, others = left - size, others - 1
    return _MAX_INSTRUCTIONS_BYTES


def _cut(text: str, limit_bytes: int) -> str:
    encoded = text.encode("utf-8", "replace")
    if len(encoded) <= limit_bytes:
        return text
    kept = encoded[:limit_bytes].decode("utf-8", "ignore")
    return f"{kept}\n[truncated by the gateway: {len(encoded) - limit_bytes} more bytes]"


def joined_extensions(registry: SourceRegistry, caller: Caller) -> dict[str, msgspec.Raw]:
    """The extensions of all modern servers, each with the settings of the first server that has it."""
    joined: dict[str, msgspec.Raw] = {}
    for _, snapshot in _shown(registry, caller):
        if snapshot.protocol_version in MODERN:
            for name, settings in server_extensions(snapshot.capabilities).items():
                joined.setdefault(name, settings)
    return joined


def joined_tasks(registry: SourceRegistry, caller: Caller) -> dict[str, object]:
    """The `tasks` capability of MCP 2025-11-25 if a server has it, or may have it; otherwise empty. It has no `list`:
    task ids are only for the clients that received them."""
    snapshots = [snapshot for _, snapshot in _shown(registry, caller) if snapshot.protocol_version == WITH_LEGACY_TASKS]
    running = [tasks for tasks in (legacy_tasks(snapshot.capabilities) for snapshot in snapshots) if tasks.run_tools]
    unknown = [each for source, each in registry.servers().items() if registry.catalog.snapshot(source) is None]
    if any(admission.health.state == "starting" for admission in unknown):  # nothing can be added after `initialize`
        running.append(LegacyTasks(run_tools=True, cancel=True))
    if not running:
        return {}
    joined: dict[str, object] = {"requests": {"tools": {"call": {}}}}
    if any(tasks.cancel for tasks in running):
        joined["cancel"] = {}
    return joined


def _shown(registry: SourceRegistry, caller: Caller) -> Iterator[tuple[str, Snapshot]]:
    """The servers in this caller's lists with their snapshots, in the order of the configuration."""
    view = registry.views.of(caller)
    for source in registry.servers():
        snapshot = view.snapshot(source)
        if snapshot is not None and not view.is_hidden(source):
            yield source, snapshot


# -- lists ------------------------------------------------------------------------------------------------------------


def list_cache_hints(registry: SourceRegistry, caller: Caller, kind: ListName) -> ListCacheHints:
    """The shortest TTL of all parts of the list; zero while a server is missing or gave no TTL."""
    parts = [(source, snapshot) for source, snapshot in _shown(registry, caller) if _has(snapshot, kind)]
    if not parts or registry.views.of(caller) is not registry.catalog or incomplete_sources(registry):
        return ListCacheHints(0, public=False)
    now = monotonic()
    fresh = [snapshot.freshness.get(kind, _UNKNOWN) for _, snapshot in parts]
    ttl_ms = min(int(part.ttl_ms - (now - part.since) * 1000) for part in fresh)
    return ListCacheHints(max(0, ttl_ms), public=all(part.public for part in fresh))


def _capability(kind: ListName) -> str:
    return "resources" if kind == "templates" else kind


def _has(snapshot: Snapshot, kind: ListName) -> bool:
    return bool(getattr(snapshot, kind)) or _capability(kind) in server_capabilities(snapshot.capabilities)


def incomplete_sources(registry: SourceRegistry) -> list[dict[str, object]]:
    """The servers whose part of the lists is missing or, if `stale`, out of date; for `_meta`."""
    incomplete: list[dict[str, object]] = []
    for source, admission in registry.servers().items():
        health, is_published = admission.health, registry.catalog.snapshot(source) is not None
        if health.state == "disabled" or (health.state in SERVING and is_published):
            continue
        stale = is_published and not registry.catalog.is_hidden(source)
        entry: dict[str, object] = {"server": source, "state": health.state, "stale": stale}
        reason = health.reason or health.last_error
        incomplete.append(entry | ({"reason": reason} if reason else {}))
    return incomplete


def refresh_lists(registry: SourceRegistry, kind: ListName) -> None:
    """Refresh the servers that do not announce changes of this list, and those whose list has expired."""
    now = monotonic()
    for source, admission in registry.admissions.items():
        snapshot = registry.catalog.snapshot(source)
        is_serving = source != RESERVED_SOURCE and admission.health.state in SERVING
        if snapshot is None or not is_serving or not _has(snapshot, kind):
            continue
        freshness = snapshot.freshness.get(kind, _UNKNOWN)
        is_kept = freshness.ttl_ms == 0 and announces_changes(snapshot.capabilities, _capability(kind))
        if not is_kept and now >= freshness.since + freshness.ttl_ms / 1000:
            admission.source.refresh()  # the source limits how often
