"""What a server may ask of a client, going by what the client declared."""

from __future__ import annotations

from typing import Final

from trunkline.core.server_request import ELICITATION, ROOTS, SAMPLING
from trunkline.protocol.jsonrpc import BadMessage, Members, encode, members_of, text_member

METHOD_NOT_FOUND: Final = b'{"code":-32601,"message":"Method not found"}'
_DECLARED_AS: Final = {ELICITATION: "elicitation", SAMPLING: "sampling", ROOTS: "roots"}


def refusal(capabilities: bytes, method: str, params: bytes) -> bytes | None:
    """The JSON-RPC error for a question that this client cannot be asked; None when it can."""
    capability = _DECLARED_AS.get(method)
    try:
        granted = None if capability is None else members_of(capabilities, "`capabilities`").get(capability)
        if granted is None:
            return METHOD_NOT_FOUND
        wrong = _wrong_with(method, members_of(granted, "a capability"), members_of(params, "`params`"))
    except (BadMessage, RecursionError) as error:
        wrong = str(error)
    return None if wrong is None else encode({"code": -32602, "message": wrong})


def _wrong_with(method: str, granted: Members, asked: Members) -> str | None:
    if method == ELICITATION:
        mode = text_member(asked, "mode") or "form"
        # A capability without members is from before there were modes.
        return None if mode in (granted or ("form",)) else f"the client does not take elicitations of mode `{mode}`"
    if method == SAMPLING and "tools" not in granted and ("tools" in asked or "toolChoice" in asked):
        return "the client does not take tools in sampling"
    return None
