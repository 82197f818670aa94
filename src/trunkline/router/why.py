"""Why a tool is there under this name, or is not: the answer to the question every gateway's users ask first."""

from __future__ import annotations

from difflib import get_close_matches
from typing import Final

from trunkline.core.names import split_address, without_own_prefix
from trunkline.core.tool import Snapshot
from trunkline.router.catalog import Entry
from trunkline.router.gate import Gate
from trunkline.router.router import Router

_WELL: Final = ("ready", "degraded")
_MAX_SIMILAR: Final = 5

Finding = dict[str, str]


def why_tool(router: Router, name: str) -> dict[str, object]:
    """`found` says whether a call by this name reaches a tool; `findings` are the reasons, each with what to do."""
    entry = router.catalog.find(name)
    if entry is not None:
        return _there(router, name, entry)
    candidates = _candidates(router, name)
    findings = [_missing(router, gate, _bare_name(name, gate)) for gate in candidates]
    addresses = router.catalog.addresses_of(without_own_prefix(name))
    if addresses:
        findings.append(_finding(f"Several servers have a tool `{name}`", f"say which: {', '.join(addresses)}"))
    if not findings:
        findings.append(_no_server(router, name))
    return {"name": name, "found": False, "findings": findings, "similar": _similar(router, name)}


def _there(router: Router, name: str, entry: Entry) -> dict[str, object]:
    tool, gate = entry.tool, router.gates[entry.tool.source]
    findings: list[Finding] = []
    if entry.exposed is None:
        findings += [
            _finding(problem.message, problem.hint)
            for problem in router.catalog.collisions
            if (problem.source, problem.tool) == (tool.source, tool.name)
        ]
    if gate.health.state not in _WELL:
        findings.append(_state(gate))
    listed = entry.exposed is not None and any(entry is other for other in router.catalog.entries())
    if listed:
        findings.append(_finding(f"Clients see it as `{entry.exposed}`"))
    elif entry.exposed is not None:
        findings.append(_finding("It is left out of the list while its server is away; calls say why"))
    told: dict[str, object] = {"name": name, "found": True, "listed": listed}
    return told | {"address": tool.address, "exposed": entry.exposed or "", "server": tool.source, "findings": findings}


def _candidates(router: Router, name: str) -> list[Gate]:
    """The servers that a tool of this name would belong to."""
    bare = without_own_prefix(name)
    address = split_address(bare)
    if address is not None and address[0] in router.gates:
        return [router.gates[address[0]]]
    gates = router.roster.servers().values()
    by_prefix = [gate for gate in gates if _prefix_in(bare, gate)]
    return by_prefix or [gate for gate in gates if _offers(router.catalog.snapshot(gate.name), bare)]


def _prefix_in(name: str, gate: Gate) -> str:
    prefixes = (f"{gate.name}_", f"{gate.name}:", f"{gate.options.rules.prefix}_")
    return next((prefix for prefix in prefixes if len(prefix) > 1 and name.startswith(prefix)), "")


def _bare_name(name: str, gate: Gate) -> str:
    bare = without_own_prefix(name)
    address = split_address(bare)
    if address is not None and address[0] == gate.name:
        return address[1]
    return bare.removeprefix(_prefix_in(bare, gate))


def _offers(snapshot: Snapshot | None, tool: str) -> bool:
    return snapshot is not None and any(offered.name == tool for offered in snapshot.tools)


def _missing(router: Router, gate: Gate, tool: str) -> Finding:
    """Why this server does not give this tool."""
    snapshot, rules = router.catalog.snapshot(gate.name), gate.options.rules
    if snapshot is None or gate.health.state == "disabled":
        return _state(gate)
    if _offers(snapshot, tool) and not rules.shows(tool):
        what = f"Server `{gate.name}` has `{tool}`, and the configuration hides it"
        return _finding(what, f"see `tools.allow` and `tools.deny` of `{gate.name}`")
    names = [offered.name for offered in snapshot.tools]
    near = get_close_matches(tool, names, n=3, cutoff=0.5)
    left_out = [warning for warning in snapshot.warnings if tool in warning]
    if left_out:
        return _finding(f"Server `{gate.name}`: {left_out[0]}", "its definition must be mended in the server")
    hint = f"did you mean {' or '.join(f'`{gate.name}.{one}`' for one in near)}?" if near else ""
    return _finding(
        f"Server `{gate.name}` is {gate.health.state} and offers {len(names)} tools, none named `{tool}`", hint
    )


def _state(gate: Gate) -> Finding:
    health = gate.health
    reason = f": {health.reason or health.last_error}" if health.reason or health.last_error else ""
    hint = health.hint or (f"its last words on stderr: {health.stderr_tail}" if health.stderr_tail else "")
    if health.state == "disabled":
        hint = f"set `enabled: true` for `{gate.name}`"
    return _finding(f"Server `{gate.name}` is {health.state}{reason}", hint)


def _no_server(router: Router, name: str) -> Finding:
    address = split_address(without_own_prefix(name))
    servers = list(router.roster.servers())
    if address is not None:
        near = get_close_matches(address[0], servers, n=1)
        hint = f"did you mean `{near[0]}`?" if near else f"servers: {', '.join(servers) or 'none'}"
        return _finding(f"There is no server `{address[0]}`", hint)
    hint = f"servers: {', '.join(servers)}" if servers else "the configuration names no servers: `trunkline add`"
    return _finding(f"No server has a tool `{name}`", hint)


def _similar(router: Router, name: str) -> list[str]:
    exposed = [entry.exposed for entry in router.catalog.entries() if entry.exposed]
    return get_close_matches(name, exposed, n=_MAX_SIMILAR, cutoff=0.5)


def _finding(what: str, hint: str = "") -> Finding:
    return {"what": what, "hint": hint} if hint else {"what": what}
