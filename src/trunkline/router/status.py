"""How each server is, in one shape for everyone who asks: our own tools, the operator's routes, pages and commands."""

from __future__ import annotations

from dataclasses import dataclass, replace
from datetime import UTC, datetime

import msgspec

from trunkline.core.names import RESERVED_SOURCE
from trunkline.core.tool import Snapshot
from trunkline.router.admission import Admission
from trunkline.router.catalog import Catalog
from trunkline.router.router import Router


@dataclass(frozen=True, slots=True, kw_only=True)
class ServerStatus:
    """`since` is when it came into its state; `server` is what the server calls itself.

    What it offers is counted as clients see it: nothing, when the server has been away for longer than its grace.
    """

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
        """Such as `3 tools, 1 prompt`: the tools always, the rest where there is some."""
        more = {"prompt": self.prompts, "resource": self.resources, "resource template": self.templates}
        counts = {"tool": self.tools, **{noun: count for noun, count in more.items() if count}}
        return ", ".join(f"{count} {noun}{'' if count == 1 else 's'}" for noun, count in counts.items())


def server_statuses(router: Router) -> list[ServerStatus]:
    """All configured servers, in the order of the file."""
    collisions: dict[str, list[str]] = {}
    catalog = router.catalog
    for problem in (*catalog.collisions, *catalog.prompts.collisions):
        collisions.setdefault(problem.source, []).append(problem.message)
    for problem in catalog.resources.collisions:
        collisions.setdefault(problem.source, []).append(f"{problem.message}: {problem.hint}")
    shown: dict[str, int] = {}
    for entry in catalog.entries():
        shown[entry.tool.source] = shown.get(entry.tool.source, 0) + 1
    return [
        replace(
            _status(admission, catalog.snapshot(name), shown.get(name, 0), tuple(collisions.get(name, ()))),
            warnings=(*router.registry.changes.warnings(name), *_warnings(catalog.snapshot(name))),
            **offered_beside_tools(catalog, name),
        )
        for name, admission in router.admissions.items()
        if name != RESERVED_SOURCE
    ]


def offered_beside_tools(catalog: Catalog, source: str) -> dict[str, int]:
    """How many prompts, resources and templates a server has for those who see this catalog."""
    snapshot = None if catalog.is_hidden(source) else catalog.snapshot(source)
    if snapshot is None:
        return {"prompts": 0, "resources": 0, "templates": 0}
    return {
        "prompts": len(snapshot.prompts),
        "resources": len(snapshot.resources),
        "templates": len(snapshot.templates),
    }


def _status(admission: Admission, snapshot: Snapshot | None, tools: int, collisions: tuple[str, ...]) -> ServerStatus:
    health = admission.health
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
        protocol_version=snapshot.protocol_version if snapshot else "",
        server=_own_name(snapshot.server_info) if snapshot else "",
        in_flight=admission.in_flight,
        queued=len(admission.queue),
        origin=admission.options.origin,
        collisions=collisions,
    )


def _warnings(snapshot: Snapshot | None) -> tuple[str, ...]:
    return () if snapshot is None else snapshot.warnings


class _Info(msgspec.Struct):
    name: str = ""
    version: str = ""


def _own_name(server_info: bytes) -> str:
    try:
        info = msgspec.json.decode(server_info, type=_Info)
    except msgspec.MsgspecError:
        return ""
    return f"{info.name} {info.version}".strip()


def status_json(status: ServerStatus) -> dict[str, object]:
    """The status as programs get it; what is empty is left out."""
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
