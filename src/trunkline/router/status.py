"""The status of each server, in one shape for every way to ask: meta tools, operator routes, pages, commands."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass
from datetime import UTC, datetime

import msgspec

from trunkline.core.tool import Snapshot
from trunkline.router.admission import Admission
from trunkline.router.catalog import Catalog
from trunkline.router.router import Router


@dataclass(frozen=True, slots=True, kw_only=True)
class ServerStatus:
    """The status of one server. `since` is when it entered its state; `server` is its own name and version. Tools,
    prompts and resources are counted as clients see them: none once the server has been down for its grace period."""

    name: str
    kind: str
    state: str
    reason: str
    hint: str
    since: float
    last_error: str
    restarts: int
    stderr_tail: str
    tools: int
    protocol_version: str
    server: str
    in_flight: int
    queued: int
    origin: str
    collisions: tuple[str, ...]
    warnings: tuple[str, ...] = ()
    prompts: int = 0
    resources: int = 0
    templates: int = 0

    @property
    def offered(self) -> str:
        """What it offers, such as `3 tools, 1 prompt`: tools always, the rest if there are any."""
        more = {"prompt": self.prompts, "resource": self.resources, "resource template": self.templates}
        counts = {"tool": self.tools, **{noun: count for noun, count in more.items() if count}}
        return ", ".join(f"{count} {noun}{'' if count == 1 else 's'}" for noun, count in counts.items())


def server_statuses(router: Router) -> list[ServerStatus]:
    """The status of all servers, in the order of the configuration."""
    collisions: dict[str, list[str]] = {}
    catalog = router.catalog
    for problem in (*catalog.collisions, *catalog.prompts.collisions):
        collisions.setdefault(problem.source, []).append(problem.message)
    for problem in catalog.resources.collisions:
        collisions.setdefault(problem.source, []).append(f"{problem.message}: {problem.hint}")
    shown = Counter(entry.source for entry in catalog.entries())
    return [
        _status(admission, catalog, shown[name], collisions.get(name, ()), router.registry.changes.warnings(name))
        for name, admission in router.registry.servers().items()
    ]


def offered_beside_tools(catalog: Catalog, source: str) -> dict[str, int]:
    """How many prompts, resources and templates of a source this catalog shows."""
    snapshot = (None if catalog.is_hidden(source) else catalog.snapshot(source)) or Snapshot()
    return {
        "prompts": len(snapshot.prompts),
        "resources": len(snapshot.resources),
        "templates": len(snapshot.templates),
    }


def _status(
    admission: Admission, catalog: Catalog, tools: int, collisions: Iterable[str], changes: Iterable[str]
) -> ServerStatus:
    health, snapshot = admission.health, catalog.snapshot(admission.name) or Snapshot()
    try:
        info = msgspec.json.decode(snapshot.server_info, type=_Info)
    except msgspec.MsgspecError:
        info = _Info()
    return ServerStatus(
        name=admission.name,
        kind=admission.options.kind,
        state=health.state,
        reason=health.reason,
        hint=health.hint,
        since=health.since,
        last_error=health.last_error,
        restarts=health.restarts,
        stderr_tail=health.stderr_tail,
        tools=tools,
        protocol_version=snapshot.protocol_version,
        server=f"{info.name} {info.version}".strip(),
        in_flight=admission.in_flight,
        queued=len(admission.queue),
        origin=admission.options.origin,
        collisions=tuple(collisions),
        warnings=(*changes, *snapshot.warnings),
        **offered_beside_tools(catalog, admission.name),
    )


class _Info(msgspec.Struct):
    name: str = ""
    version: str = ""


def status_json(status: ServerStatus) -> dict[str, object]:
    """The status as JSON; empty fields are left out."""
    always: dict[str, object] = {
        "name": status.name,
        "kind": status.kind,
        "state": status.state,
        "tools": status.tools,
        "restarts": status.restarts,
        "inFlight": status.in_flight,
        "queued": status.queued,
        "origin": status.origin,
    }
    since = datetime.fromtimestamp(status.since, UTC).isoformat(timespec="seconds") if status.since else ""
    sometimes: dict[str, object] = {
        "prompts": status.prompts,
        "resources": status.resources,
        "resourceTemplates": status.templates,
        "reason": status.reason,
        "hint": status.hint,
        "since": since.replace("+00:00", "Z"),
        "lastError": status.last_error,
        "stderrTail": status.stderr_tail,
        "protocolVersion": status.protocol_version,
        "server": status.server,
        "collisions": list(status.collisions),
        "warnings": list(status.warnings),
    }
    return always | {name: value for name, value in sometimes.items() if value}
