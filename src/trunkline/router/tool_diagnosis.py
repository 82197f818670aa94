"""Why a tool is there under this name, or is not: the answer to the question every gateway's users ask first."""

from __future__ import annotations

from collections.abc import Iterable
from difflib import get_close_matches
from itertools import islice
from typing import Final

from trunkline.core.names import split_address, without_own_prefix
from trunkline.core.tool import Snapshot
from trunkline.router.admission import Admission
from trunkline.router.catalog import ToolEntry
from trunkline.router.router import Router

_WELL: Final = ("ready", "degraded")
_MAX_SIMILAR: Final = 5
_MAX_NEAR: Final = 3
_MAX_COMPARED: Final = 2000
"""Names that are compared by spelling: each costs some microseconds, and calls wait meanwhile."""
_LONGEST_NAME: Final = 200
_ALIKE: Final = 0.5

Finding = dict[str, str]


def diagnose_tool(router: Router, name: str) -> dict[str, object]:
    """`found` says whether a call by this name reaches a tool; `findings` are the reasons, each with what to do."""
    entry = router.catalog.find(name)
    if entry is not None:
        return _there(router, name, entry)
    addresses = router.catalog.addresses_of(without_own_prefix(name))
    if addresses:
        findings = [_finding(f"Several servers have a tool `{name}`", f"say which: {', '.join(addresses)}")]
    else:
        findings = [_missing(router, admission, _bare_name(name, admission)) for admission in _candidates(router, name)]
    findings = findings or [_no_server(router, name)]
    return {"name": name, "found": False, "findings": findings, "similar": _similar(router, name)}


# -- a tool that is there ---------------------------------------------------------------------------------------------


def _there(router: Router, name: str, entry: ToolEntry) -> dict[str, object]:
    tool, admission = entry.tool, router.admissions[entry.tool.source]
    findings: list[Finding] = []
    if admission.health.state not in _WELL:
        findings.append(_state(admission))
    listed = entry.exposed is not None and any(entry is other for other in router.catalog.entries())
    if listed:
        findings.append(_finding(f"Clients see it as `{entry.exposed}`"))
    elif entry.exposed is not None:
        findings.append(_finding("It is left out of the list while its server is away; calls say why"))
    else:
        findings += _lost_names(router, entry)
    told: dict[str, object] = {"name": name, "found": True, "listed": listed}
    return told | {"address": tool.address, "exposed": entry.exposed or "", "server": tool.source, "findings": findings}


def _lost_names(router: Router, entry: ToolEntry) -> list[Finding]:
    """The names it wanted, and who has them."""
    return [
        _finding(problem.message, problem.hint)
        for problem in router.catalog.collisions
        if (problem.source, problem.tool) == (entry.tool.source, entry.tool.name)
    ]


# -- a tool that is not -----------------------------------------------------------------------------------------------


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
        if bare in admission.options.withheld or _offers(router.catalog.snapshot(admission.name), bare)
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


def _offers(snapshot: Snapshot | None, tool: str) -> bool:
    return snapshot is not None and any(offered.name == tool for offered in snapshot.tools)


def _missing(router: Router, admission: Admission, tool: str) -> Finding:
    """Why this server does not give this tool."""
    snapshot, rules = router.catalog.snapshot(admission.name), admission.options.rules
    if tool in admission.options.withheld:
        what = f"Server `{admission.name}` offers `{tool}` only where `tools.allow` has its very name, not a pattern"
        return _finding(what, f'write `tools: {{allow: ["*", {tool}]}}` for `{admission.name}` if clients may have it')
    if snapshot is None or admission.health.state == "disabled":
        return _state(admission)
    if _offers(snapshot, tool) and not rules.shows(tool):
        what = f"Server `{admission.name}` has `{tool}`, and the configuration hides it"
        return _finding(what, f"see `tools.allow` and `tools.deny` of `{admission.name}`")
    left_out = [warning for warning in snapshot.warnings if f"`{tool}`" in warning or f'"{tool}"' in warning]
    if left_out:
        return _finding(f"Server `{admission.name}`: {left_out[0]}", "its definition must be mended in the server")
    names = [offered.name for offered in snapshot.tools if rules.shows(offered.name)]
    near = _close(tool, names, _MAX_NEAR)
    hint = f"did you mean {' or '.join(f'`{admission.name}.{one}`' for one in near)}?" if near else ""
    number = "1 tool" if len(names) == 1 else f"{len(names)} tools"
    return _finding(
        f"Server `{admission.name}` is {admission.health.state} and offers {number}, none named `{tool}`", hint
    )


def _state(admission: Admission) -> Finding:
    health = admission.health
    reason = f": {health.reason or health.last_error}" if health.reason or health.last_error else ""
    last_words = health.stderr_tail.strip().splitlines()[-1:]
    hint = health.hint or (f"its last output on stderr: {last_words[0]}" if last_words else "")
    if health.state == "disabled":
        hint = f"set `enabled: true` for `{admission.name}`"
    return _finding(f"Server `{admission.name}` is {health.state}{reason}", hint)


def _no_server(router: Router, name: str) -> Finding:
    """Nobody offers it. A server that was never heard of may, once it is up."""
    address = split_address(without_own_prefix(name))
    servers = router.registry.servers()
    if not servers:
        return _finding(f"No server has a tool `{name}`", "the configuration names no servers: `trunkline add`")
    if address is not None and (near := _close(address[0], list(servers), 1)):
        return _finding(f"There is no server `{address[0]}`", f"did you mean `{near[0]}`?")
    silent = [admission for admission in servers.values() if router.catalog.snapshot(admission.name) is None]
    if silent:
        named = ", ".join(f"`{admission.name}` ({admission.health.state})" for admission in silent)
        return _finding(f"No server is known to have a tool `{name}`", f"these have not told what they offer: {named}")
    what = f"There is no server `{address[0]}`" if address is not None else f"No server has a tool `{name}`"
    return _finding(what, f"servers: {', '.join(servers)}")


# -- spelling ---------------------------------------------------------------------------------------------------------


def _similar(router: Router, name: str) -> list[str]:
    exposed = (entry.exposed for entry in router.catalog.entries() if entry.exposed)
    return _close(name, exposed, _MAX_SIMILAR)


def _close(name: str, others: Iterable[str], number: int) -> list[str]:
    compared = [other for other in islice(others, _MAX_COMPARED) if len(other) <= _LONGEST_NAME]
    return get_close_matches(name[:_LONGEST_NAME], compared, n=number, cutoff=_ALIKE)


def _finding(what: str, hint: str = "") -> Finding:
    return {"what": what, "hint": hint} if hint else {"what": what}
