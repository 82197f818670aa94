"""The shapes of what clients ask servers through us: wrong ones are refused here, with the same words for all."""

from __future__ import annotations

from typing import Final

from trunkline.core.errors import INVALID_PARAMS, Problem
from trunkline.protocol.jsonrpc import BadMessage, Members, text_member

_OPEN_BRACE: Final = 0x7B
_TEXTS: Final = {
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
    if name is not None and text_or_none(params, name) is None:
        return _must_be(name, "a string")
    for name in _OBJECTS.get(method or "", ()):
        if name not in params or memoryview(params[name])[0] != _OPEN_BRACE:
            return _must_be(name, "an object")
    return wrong_with_arguments(params)


def wrong_with_arguments(params: Members) -> Problem | None:
    """Arguments are an object. Some clients write null for none; whether that will do is for the server to say."""
    arguments = params.get("arguments")
    if arguments is None or memoryview(arguments)[0] == _OPEN_BRACE or bytes(arguments) == b"null":
        return None
    return _must_be("arguments", "an object")


def text_or_none(params: Members, name: str) -> str | None:
    try:
        return text_member(params, name)
    except BadMessage:
        return None


def _must_be(name: str, what: str) -> Problem:
    return Problem(code=INVALID_PARAMS, message=f"`params.{name}` must be {what}")


NO_NAME: Final = _must_be("name", "a string")
