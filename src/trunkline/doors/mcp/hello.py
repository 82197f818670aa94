"""Who we are: the answers to `initialize` and `server/discover`."""

from __future__ import annotations

from dataclasses import replace
from functools import lru_cache
from typing import Final

from trunkline.core.errors import INVALID_PARAMS, Problem
from trunkline.doors.mcp.answer import refuse, result_of_ours
from trunkline.doors.mcp.asked import Asked
from trunkline.doors.mcp.conversation import Conversation
from trunkline.router.router import Router
from trunkline.version import __version__
from trunkline.wire.jsonrpc import BadMessage, Members, encode, members_of, text_member
from trunkline.wire.mcp.capabilities import askable, declared
from trunkline.wire.mcp.legacy import initialize_result
from trunkline.wire.mcp.modern import SERVER_INFO
from trunkline.wire.mcp.versions import SUPPORTED, negotiate

INFO: Final = {"name": "trunkline", "title": "Trunkline", "version": __version__}
CAPABILITIES: Final[dict[str, object]] = {
    "tools": {"listChanged": True},
    "prompts": {"listChanged": True},
    "resources": {"subscribe": True, "listChanged": True},
    "completions": {},
    "logging": {},
}
HINTS: Final = b'"ttlMs":0,"cacheScope":"private","_meta":{"%b":%b}' % (SERVER_INFO.encode(), encode(INFO))
_CLIENT_NAME_LIMIT: Final = 64
_REMEMBERED_BYTES: Final = 1024


class Hello:
    def __init__(self, router: Router) -> None:
        self._router = router

    def initialize(self, conversation: Conversation, asked: Asked) -> bool:
        """Whether the handshake succeeded: the client is then known by what it said of itself."""
        version = _text_or_none(asked.params, "protocolVersion")
        if version is None:
            refuse(asked.answer, Problem(code=INVALID_PARAMS, message="`params.protocolVersion` must be a string"))
            return False
        capabilities = declared(bytes(asked.params.get("capabilities", b"{}")))
        caller = conversation.caller
        session = caller.session
        if session is None and conversation.session_if_asked and askable(capabilities) != b"{}":
            session = conversation.session_if_asked
        conversation.version = negotiate(version)
        conversation.caller = replace(
            caller,
            session=session,
            client=client_name(bytes(asked.params.get("clientInfo", b"{}"))),
            capabilities=capabilities,
            version=conversation.version,
        )
        result = initialize_result(conversation.version, CAPABILITIES, INFO, "")
        asked.answer.result(result_of_ours(result))
        return True

    def discover(self, asked: Asked) -> None:
        versions = encode({"supportedVersions": SUPPORTED, "capabilities": CAPABILITIES})
        hello = b'{"resultType":"complete",%b,%b}' % (versions[1:-1], HINTS)
        asked.answer.result(result_of_ours(hello))


def client_name(info: bytes) -> str:
    """What a client calls itself: shown in logs, and trusted for nothing."""
    return _known_name(info) if len(info) <= _REMEMBERED_BYTES else _read_name(info)


@lru_cache(maxsize=256)
def _known_name(info: bytes) -> str:
    """Stateless clients say it with every request."""
    return _read_name(info)


def _read_name(info: bytes) -> str:
    try:
        name = _text_or_none(members_of(info, "`clientInfo`"), "name")
    except BadMessage:
        return ""
    return "" if name is None else name[:_CLIENT_NAME_LIMIT]


def _text_or_none(members: Members, name: str) -> str | None:
    try:
        return text_member(members, name)
    except BadMessage:
        return None
