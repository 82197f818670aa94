"""Calls whose headers a modern server refused: its tools are listed again, and each goes once more with new ones."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import msgspec

from trunkline.core.call import Call, Json
from trunkline.protocol.mcp.param_headers import BadAnnotation, header_parameters_of, param_headers
from trunkline.sources.mcp.offer import Offer


class _ToolCall(msgspec.Struct):
    name: str = ""
    arguments: msgspec.Raw = msgspec.Raw(b"{}")


def mirror_again(offer: Offer, submit: Callable[[Call], None], call: Call) -> bool:
    """False for a call that this cannot help."""
    if call.method != "tools/call" or call.retried or call.done:
        return False
    call.retried = True
    offer.list_tools_then(partial(_send_again, offer, submit, call))
    return True


def _send_again(offer: Offer, submit: Callable[[Call], None], call: Call) -> None:
    if not call.done:
        call.headers = _headers(offer, call.params)
        submit(call)


def _headers(offer: Offer, params: Json) -> list[tuple[bytes, bytes]]:
    try:
        called = msgspec.json.decode(params, type=_ToolCall)
        return param_headers(header_parameters_of(offer.definition_of(called.name)), bytes(called.arguments))
    except (msgspec.MsgspecError, BadAnnotation):
        return []
