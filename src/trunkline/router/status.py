"""What operators ask of the router: the status of each server, and why a name reaches a tool or does not.

Every way to ask gets the same: meta tools, operator routes, pages, commands.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from difflib import get_close_matches
from itertools import islice
from typing import Final

import msgspec

from trunkline.core.names import split_address, without_own_prefix
from trunkline.core.source import SERVING
from trunkline.core.tool import Snapshot
from trunkline.router.admission import Admission
from trunkline.router.catalog import Catalog, ToolEntry
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
    snapshot = catalog.snapshot(admission.name) or Snapshot()
    beside_tools = offered_beside_tools(catalog, admission.name)
    try:
        info = msgspec.json.decode(snapshot.server_info, type=_ServerInfo)
    except msgspec.MsgspecError:
        info = _ServerInfo()
    return ServerStatus(
        name=admission.name,
        kind=admission.options.kind,
        **asdict(admission.health),
        tools=tools,
        protocol_version=snapshot.protocol_version,
        server=f"{info.name} {info.version}".strip(),
        in_flight=admission.in_flight,
        queued=len(admission.queue),
        origin=admission.options.origin,
        collisions=tuple(collisions),
        warnings=(*changes, *snapshot.warnings),
        prompts=beside_tools["prompts"],
        resources=beside_tools["resources"],
        templates=beside_tools["templates"],
    )


class _ServerInfo(msgspec.Struct):
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


# -- why a name reaches a tool ----------------------------------------------------------------------------------------

_MAX_SIMILAR: Final = 5
_MAX_NEAR: Final = 3
_MAX_COMPARED: Final = 2000
"""Names compared by spelling, at some microseconds each, during which no call is served."""
_LONGEST_NAME: Final = 200
_ALIKE: Final = 0.5

Finding = dict[str, str]


def diagnose_tool(router: Router, name: str) -> dict[str, object]:
    """Diagnose a name: `found` says whether a call by it reaches a tool, `findings` are the reasons, with hints."""
    entry = router.catalog.find(name)
    if entry is not None:
        return _found(router, name, entry)
    addresses = router.catalog.addresses_of(without_own_prefix(name))
    if addresses:
        hint = f"call one of them by its address: {', '.join(addresses)}"
        findings = [_finding(f"Several servers have a tool `{name}`", hint)]
    else:
        findings = [_missing(router, admission, _bare_name(name, admission)) for admission in _candidates(router, name)]
    findings = findings or [_no_server(router, name)]
    exposed = (entry.exposed for entry in router.catalog.entries() if entry.exposed)
    return {"name": name, "found": False, "findings": findings, "similar": _close(name, exposed, _MAX_SIMILAR)}


def _found(router: Router, name: str, entry: ToolEntry) -> dict[str, object]:
    tool, admission = entry.tool, router.admissions[entry.tool.source]
    findings: list[Finding] = []
    if admission.health.state not in SERVING:
        findings.append(_state(admission))
    listed = entry.exposed is not None and any(entry is other for other in router.catalog.entries())
    if listed:
        findings.append(_finding(f"Clients see it as `{entry.exposed}`"))
    elif entry.exposed is not None:
        findings.append(_finding("It is not listed while its server is down; a call returns the reason"))
    else:
        findings += [
            _finding(problem.message, problem.hint)
            for problem in router.catalog.collisions
            if (problem.source, problem.tool) == (tool.source, tool.name)
        ]
    return {
        "name": name,
        "found": True,
        "listed": listed,
        "address": tool.address,
        "exposed": entry.exposed or "",
        "server": tool.source,
        "findings": findings,
    }


def _candidates(router: Router, name: str) -> list[Admission]:
    """The servers that a tool of this name would belong to."""
    bare = without_own_prefix(name)
    servers = router.registry.servers()
    address = split_address(bare)
    if address is not None and address[0] in servers:
        return [servers[address[0]]]
    by_prefix = [admission for admission in servers.values() if _prefix_in(bare, admission)]
    return by_prefix or [
        admission
        for admission in servers.values()
        if bare in admission.options.withheld or _has(router.catalog.snapshot(admission.name), bare)
    ]


def _prefix_in(name: str, admission: Admission) -> str:
    prefixes = (f"{admission.name}__", f"{admission.name}_", f"{admission.name}:", f"{admission.options.rules.prefix}_")
    return next((prefix for prefix in prefixes if len(prefix) > 1 and name.startswith(prefix)), "")


def _bare_name(name: str, admission: Admission) -> str:
    bare = without_own_prefix(name)
    address = split_address(bare)
    if address is not None and address[0] == admission.name:
        return address[1]
    return bare.removeprefix(_prefix_in(bare, admission))


def _has(snapshot: Snapshot | None, tool: str) -> bool:
    return snapshot is not None and any(offered.name == tool for offered in snapshot.tools)


def _missing(router: Router, admission: Admission, tool: str) -> Finding:
    """Why this server does not offer this tool."""
    snapshot, rules = router.catalog.snapshot(admission.name), admission.options.rules
    if tool in admission.options.withheld:
        what = f"Server `{admission.name}` offers `{tool}` only if `tools.allow` has its exact name, not a pattern"
        return _finding(what, f'write `tools: {{allow: ["*", {tool}]}}` for `{admission.name}` if clients may have it')
    if snapshot is None or admission.health.state == "disabled":
        return _state(admission)
    if _has(snapshot, tool) and not rules.shows(tool):
        what = f"Server `{admission.name}` has `{tool}`, but the configuration hides it"
        return _finding(what, f"see `tools.allow` and `tools.deny` of `{admission.name}`")
    left_out = [warning for warning in snapshot.warnings if f"`{tool}`" in warning or f'"{tool}"' in warning]
    if left_out:
        return _finding(f"Server `{admission.name}`: {left_out[0]}", "fix the definition in the server")
    names = [offered.name for offered in snapshot.tools if rules.shows(offered.name)]
    near = _close(tool, names, _MAX_NEAR)
    hint = f"did you mean {' or '.join(f'`{admission.name}.{one}`' for one in near)}?" if near else ""
    number = "1 tool" if len(names) == 1 else f"{len(names)} tools"
    what = f"Server `{admission.name}` is {admission.health.state} and offers {number}, none named `{tool}`"
    return _finding(what, hint)


def _state(admission: Admission) -> Finding:
    health = admission.health
    reason = f": {health.reason or health.last_error}" if health.reason or health.last_error else ""
    last_lines = health.stderr_tail.strip().splitlines()[-1:]
    hint = health.hint or (f"its last output on stderr: {last_lines[0]}" if last_lines else "")
    if health.state == "disabled":
        hint = f"set `enabled: true` for `{admission.name}`"
    return _finding(f"Server `{admission.name}` is {health.state}{reason}", hint)


def _no_server(router: Router, name: str) -> Finding:
    """No server is known to offer the tool; one that has not published its tools yet may."""
    address = split_address(without_own_prefix(name))
    servers = router.registry.servers()
    if not servers:
        return _finding(f"No server has a tool `{name}`", "the configuration names no servers: `trunkline add`")
    if address is not None and (near := _close(address[0], list(servers), 1)):
        return _finding(f"There is no server `{address[0]}`", f"did you mean `{near[0]}`?")
    unpublished = [admission for admission in servers.values() if router.catalog.snapshot(admission.name) is None]
    if unpublished:
        named = ", ".join(f"`{admission.name}` ({admission.health.state})" for admission in unpublished)
        hint = f"these have not listed their tools yet: {named}"
        return _finding(f"No server is known to have a tool `{name}`", hint)
    what = f"There is no server `{address[0]}`" if address is not None else f"No server has a tool `{name}`"
    return _finding(what, f"servers: {', '.join(servers)}")


def _close(name: str, others: Iterable[str], number: int) -> list[str]:
    compared = [other for other in islice(others, _MAX_COMPARED) if len(other) <= _LONGEST_NAME]
    return get_close_matches(name[:_LONGEST_NAME], compared, n=number, cutoff=_ALIKE)


def _finding(what: str, hint: str = "") -> Finding:
    return {"what": what, "hint": hint} if hint else {"what": what}
