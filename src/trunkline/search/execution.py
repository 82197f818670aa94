"""`execute_tool` and `execute_read_only_tool`: calling them is calling the tool that they name.

The router resolves it before it does anything else, so every rule, limit, error and record is the same.
"""

from __future__ import annotations

import re
from dataclasses import replace
from typing import Final

import msgspec
from msgspec import Raw

from trunkline.config.call_arguments import InvalidArguments, decode_arguments
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
from trunkline.router.catalog import says_read_only
from trunkline.router.router import Router
from trunkline.search.listing import ClientListing
from trunkline.search.own_tool_definitions import EXECUTE, EXECUTE_READ_ONLY, ExecuteArguments
from trunkline.search.provisioning import Provisioning

_ID: Final = re.compile(r"[^\s\x00-\x1f\x7f]+[_.:][^\s\x00-\x1f\x7f]+")
_LONGEST_ID: Final = 300
_LONGEST_SHOWN: Final = 100
_EMPTY: Final = (b"", b"null")
RedirectTarget = tuple[str, Members]


class Execution:
    """Resolves calls of `execute_tool` to the tool that they name, where the caller may execute it."""

    def __init__(self, router: Router, listing: ClientListing, provisioning: Provisioning) -> None:
        self.required = True
        """Whether only tools can be executed that were found or provisioned before."""
        self._router = router
        self._listing = listing
        self._provisioning = provisioning

    def redirect(self, call: Call, tool: str, members: Members) -> RedirectTarget | None:
        """As `router.options.Redirect` says."""
        if tool not in (EXECUTE, EXECUTE_READ_ONLY):
            return None
        try:
            arguments = decode_arguments(members.get("arguments", Raw(b"{}")), ExecuteArguments)
            name, inner = self.target(call.caller, arguments, reads_only=tool == EXECUTE_READ_ONLY)
            return name, {**members, **inner}
        except InvalidArguments as error:
            call.finish(Failure(replace(error.problem, source=RESERVED_SOURCE, tool=tool)))
        except GatewayError as refused:
            call.finish(Failure(refused.problem))
        return None

    def target(self, caller: Caller, arguments: ExecuteArguments, *, reads_only: bool = False) -> RedirectTarget:
        """What to call instead; raises InvalidArguments, or GatewayError if this caller may not."""
        return self._address(caller, arguments, reads_only), {"arguments": _inner_arguments(arguments.arguments)}

    def _address(self, caller: Caller, arguments: ExecuteArguments, reads_only: bool) -> str:
        tool_id = arguments.tool_id
        entry = self._router.views.of(caller).find(tool_id)
        if entry is not None and entry.source == RESERVED_SOURCE:
            raise _refusal(UNKNOWN_TOOL, "Unknown tool: {}", tool_id, "call it by its own name")
        held = self._provisioning.existing(caller, arguments.session)
        address = tool_id if entry is None else entry.tool.address
        if self.required and not (held is not None and address in held.granted):
            if entry is None:
                raise _unknown(tool_id)
            if not self._listing.is_pinned(entry):
                message = "Tool {} not provisioned. Use provision_tools first."
                raise _refusal(NOT_PROVISIONED, message, tool_id, "`discover_tools` provisions what it returns, too")
        if entry is None and not _is_id(tool_id):
            raise _unknown(tool_id)
        if reads_only and not (entry is not None and says_read_only(entry.tool.definition)):
            message = "Tool {} is not annotated as read-only"
            raise _refusal(NOT_READ_ONLY, message, tool_id, f"run it with `{EXECUTE}`")
        return address


def _is_id(text: str) -> bool:
    return len(text) <= _LONGEST_ID and _ID.fullmatch(text) is not None


def _unknown(tool_id: str) -> GatewayError:
    if _is_id(tool_id):
        return _refusal(UNKNOWN_TOOL, "Unknown tool: {}", tool_id, "`discover_tools` finds the tools there are")
    hint = "an id is `server_tool`, as `discover_tools` gives it"
    return _refusal(BAD_TOOL_ID, "Invalid tool ID format: {}", tool_id, hint)


def _refusal(code: Code, message: str, tool_id: str, hint: str) -> GatewayError:
    shown = tool_id[:_LONGEST_SHOWN]
    return GatewayError(Problem(code=code, message=message.format(shown), tool=shown, hint=hint))


def _inner_arguments(raw: Raw) -> Raw:
    """The tool's own arguments, as an object: models leave them out, or write them as text."""
    if bytes(memoryview(raw)[:1]) == b'"':
        raw = Raw(msgspec.json.decode(raw, type=str).strip().encode("utf-8", "replace"))
    if bytes(raw) in _EMPTY:
        return Raw(b"{}")
    try:
        with REDUCED_STACK:  # what was text until now has not been checked
            msgspec.json.decode(raw, type=dict[str, Raw])
    except (msgspec.MsgspecError, RecursionError):
        raise InvalidArguments("`arguments` must be an object") from None
    return raw
