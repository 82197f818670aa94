"""The shapes of what clients ask servers through us: wrong ones are refused here, with the same words for all."""

from __future__ import annotations

from typing import Final

from trunkline.core.errors import INVALID_PARAMS, Problem
from trunkline.wire.jsonrpc import BadMessage, Members, text_member

_OPEN_BRACE: Final = 0x7B
_TEXTS: Final = {
    "tools/call": "name",
    "prompts/get": "name",
    "resources/read": "uri",
    "tasks/get": "taskId",
    "tasks/update": "taskId",
    "tasks/cancel": "taskId",
    "tasks/result": "taskId",
}
_OBJECTS: Final = {"completion/complete": ("ref", "argument"), "tasks/update": ("inputResponses",)}


def wrong_with(method: str | None, params: Members) -> Problem | None:
    name = _TEXTS.get(method or "")
    if name is not None and not _is_text(params, name):
        return _must_be(name, "a string")
    arguments = params.get("arguments")
    # Some clients write null for no arguments; whether that will do is for the server to say.
    if arguments is not None and memoryview(arguments)[0] != _OPEN_BRACE and bytes(arguments) != b"null":
        return _must_be("arguments", "an object")
    for name in _OBJECTS.get(method or "", ()):
        if name not in params or memoryview(params[name])[0] != _OPEN_BRACE:
            return _must_be(name, "an object")
    return None


def _is_text(params: Members, name: str) -> bool:
    try:
        return text_member(params, name) is not None
    except BadMessage:
        return False


def _must_be(name: str, what: str) -> Problem:
    return Problem(code=INVALID_PARAMS, message=f"`params.{name}` must be {what}")
