"""How each server is, in one shape for everyone who asks: our own tools, the operator's routes, pages and commands."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime

import msgspec

from trunkline.core.names import RESERVED_SOURCE
from trunkline.core.tool import Snapshot
from trunkline.router.gate import Gate
from trunkline.router.router import Router


@dataclass(frozen=True, slots=True, kw_only=True)
class ServerStatus:
    """`since` is when it came into its state; `server` is what the server calls itself."""

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
    warnings: tuple[str, ...]


def server_statuses(router: Router) -> list[ServerStatus]:
    """All configured servers, in the order of the file."""
    collisions: dict[str, list[str]] = {}
    for problem in router.catalog.collisions:
        collisions.setdefault(problem.source, []).append(problem.message)
    shown: dict[str, int] = {}
    for entry in router.catalog.entries():
        shown[entry.tool.source] = shown.get(entry.tool.source, 0) + 1
    return [
        _status(gate, router.catalog.snapshot(name), shown.get(name, 0), tuple(collisions.get(name, ())))
        for name, gate in router.gates.items()
        if name != RESERVED_SOURCE
    ]


def _status(gate: Gate, snapshot: Snapshot | None, tools: int, collisions: tuple[str, ...]) -> ServerStatus:
    health = gate.health
    return ServerStatus(
        name=gate.name,
        kind=gate.options.kind,
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
        in_flight=gate.in_flight,
        queued=len(gate.queue),
        origin=gate.options.origin,
        collisions=collisions,
        warnings=snapshot.warnings if snapshot else (),
    )


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
