"""`execute_tool` and `execute_read_only_tool`: a call of theirs is a call of the tool that they name.

It becomes that before the router does anything else with it, so every rule, limit, error and record is the same.
"""

from __future__ import annotations

import re
from dataclasses import replace
from typing import Final

import msgspec
from msgspec import Raw

from trunkline.config.call_arguments import BadArgument, read
from trunkline.core.call import Call, Caller, Failure
from trunkline.core.errors import (
    BAD_TOOL_ID,
    NOT_PROVISIONED,
    NOT_READ_ONLY,
    UNKNOWN_TOOL,
    Code,
    GatewayError,
    Problem,
)
from trunkline.core.names import RESERVED_SOURCE
from trunkline.protocol.jsonrpc import REDUCED_STACK, Members
from trunkline.router.catalog import ToolEntry, says_read_only
from trunkline.router.router import Router
from trunkline.search.listing import ClientListing
from trunkline.search.own_tool_definitions import EXECUTE, EXECUTE_READ_ONLY, ExecuteArguments
from trunkline.search.provisioning import Provisioning

_ID: Final = re.compile(r"[^\s\x00-\x1f\x7f]+[_.:][^\s\x00-\x1f\x7f]+")
_LONGEST_ID: Final = 300
_LONGEST_SHOWN: Final = 100
_EMPTY: Final = (b"", b"null")
Target = tuple[str, Members]


class Execution:
    def __init__(self, router: Router, listing: ClientListing, provisioning: Provisioning) -> None:
        self.required = True
        """Whether only tools can be executed that were found or provisioned before."""
        self._router = router
        self._listing = listing
        self._provisioning = provisioning

    def redirect(self, call: Call, tool: str, members: Members) -> Target | None:
        """As `router.options.Redirect` says."""
        if tool not in (EXECUTE, EXECUTE_READ_ONLY):
            return None
        try:
            asked = read(members.get("arguments", Raw(b"{}")), ExecuteArguments)
            name, inner = self.target(call.caller, asked, reads_only=tool == EXECUTE_READ_ONLY)
            return name, {**members, **inner}
        except BadArgument as error:
            call.finish(Failure(replace(error.problem, source=RESERVED_SOURCE, tool=tool)))
        except GatewayError as refused:
            call.finish(Failure(refused.problem))
        return None

    def target(self, caller: Caller, asked: ExecuteArguments, *, reads_only: bool = False) -> Target:
        """What is to be called in its place; raises BadArgument, or GatewayError where this caller may not."""
        return self._executable(caller, asked, reads_only=reads_only), {"arguments": _arguments(asked.arguments)}

    def _executable(self, caller: Caller, asked: ExecuteArguments, *, reads_only: bool) -> str:
        """The name to call it by; raises GatewayError or BadArgument."""
        entry = self._router.views.of(caller).find(asked.tool_id)
        if entry is not None and entry.source == RESERVED_SOURCE:
            message = f"Unknown tool: {asked.tool_id[:_LONGEST_SHOWN]}"
            raise GatewayError(_problem(UNKNOWN_TOOL, message, asked, "call it by its own name"))
        held = self._provisioning.seen_by(caller, asked.session)
        address = asked.tool_id if entry is None else entry.tool.address
        if self.required and not (held is not None and address in held.granted) and not self._is_pinned(entry):
            raise GatewayError(_unknown(asked) if entry is None else _not_provisioned(asked))
        if entry is None and not _is_id(asked.tool_id):
            raise GatewayError(_unknown(asked))
        if reads_only and not (entry is not None and says_read_only(entry.tool.definition)):
            message = f"Tool {asked.tool_id[:_LONGEST_SHOWN]} is not annotated as read-only"
            raise GatewayError(_problem(NOT_READ_ONLY, message, asked, f"run it with `{EXECUTE}`"))
        return address

    def _is_pinned(self, entry: ToolEntry | None) -> bool:
        return entry is not None and self._listing.is_pinned(entry)


def _is_id(text: str) -> bool:
    return len(text) <= _LONGEST_ID and _ID.fullmatch(text) is not None


def _unknown(asked: ExecuteArguments) -> Problem:
    name = asked.tool_id[:_LONGEST_SHOWN]
    if _is_id(asked.tool_id):
        return _problem(UNKNOWN_TOOL, f"Unknown tool: {name}", asked, "`discover_tools` finds the tools there are")
    hint = "an id is `server_tool`, as `discover_tools` gives it"
    return _problem(BAD_TOOL_ID, f"Invalid tool ID format: {name}", asked, hint)


def _not_provisioned(asked: ExecuteArguments) -> Problem:
    message = f"Tool {asked.tool_id[:_LONGEST_SHOWN]} not provisioned. Use provision_tools first."
    return _problem(NOT_PROVISIONED, message, asked, "`discover_tools` provisions what it returns, too")


def _problem(code: Code, message: str, asked: ExecuteArguments, hint: str) -> Problem:
    return Problem(code=code, message=message, tool=asked.tool_id[:_LONGEST_SHOWN], hint=hint)


def _arguments(raw: Raw) -> Raw:
    """The object that the tool is given. Models leave it out, or write it as text."""
    if bytes(memoryview(raw)[:1]) == b'"':
        raw = Raw(msgspec.json.decode(raw, type=str).strip().encode("utf-8", "replace"))
    if bytes(raw) in _EMPTY:
        return Raw(b"{}")
    try:
        with REDUCED_STACK:  # what was text until now has not been looked into
            msgspec.json.decode(raw, type=dict[str, Raw])
    except (msgspec.MsgspecError, RecursionError):
        raise BadArgument("`arguments` must be an object") from None
    return raw
