"""Arguments that a 2026-07-28 call repeats in headers. A client on a pipe has none, so the relay adds them: which tools
want that is asked of the gateway when it says that a header is missing."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final, cast

import msgspec

from trunkline.core.errors import HEADER_MISMATCH
from trunkline.frontends.relay.link import GatewayLink, Post
from trunkline.frontends.relay.messages import Headers
from trunkline.protocol.jsonrpc import BadMessage, Members, Message, encode, encode_members, members_of, text_member
from trunkline.protocol.mcp.modern import LATEST_MODERN
from trunkline.protocol.mcp.param_headers import BadAnnotation, HeaderParameter, header_parameters_of, param_headers

CALL: Final = "tools/call"
_LIST: Final = "tools/list"
_MAX_PAGES: Final = 64
_HEADERS: Final[Headers] = [(b"mcp-method", _LIST.encode()), (b"mcp-protocol-version", LATEST_MODERN.encode())]
Done = Callable[[], None]


class _Tool(msgspec.Struct):
    name: str


class _Page(msgspec.Struct, rename="camel"):
    tools: list[msgspec.Raw] = msgspec.field(default_factory=lambda: cast(list[msgspec.Raw], []))
    next_cursor: str | None = None


class _PageAnswer(msgspec.Struct):
    result: _Page


class _Error(msgspec.Struct):
    code: int


class _ErrorAnswer(msgspec.Struct):
    error: _Error


def lacks_header(status: int, body: bytes) -> bool:
    """Whether a gateway refused a request because its headers do not say what the body says."""
    try:
        return status == 400 and msgspec.json.decode(body, type=_ErrorAnswer).error.code == HEADER_MISMATCH.jsonrpc
    except (msgspec.MsgspecError, RecursionError):
        return False


class MirroredArguments:
    def __init__(self, link: GatewayLink) -> None:
        self._link = link
        self._tools: dict[str, tuple[HeaderParameter, ...]] = {}

    def headers(self, message: Message) -> Headers:
        """Those of a call, as far as it is known what its tool wants."""
        if not self._tools or message.method != CALL:
            return []
        params = _members(message.params)
        header_parameters = self._tools.get(_text(params, "name"), ())
        return param_headers(header_parameters, params.get("arguments", b"{}"))

    def learn(self, message: Message, done: Done) -> None:
        """List the tools as whoever sent this call may see them, then go on."""
        meta = _members(message.params).get("_meta", b"{}")
        _Listing(self._link, bytes(meta), done, self._learned).ask(None)

    def _learned(self, tools: dict[str, tuple[HeaderParameter, ...]]) -> None:
        self._tools = tools


class _Listing:
    """One walk through the pages of the list."""

    def __init__(
        self,
        link: GatewayLink,
        meta: bytes,
        done: Done,
        learned: Callable[[dict[str, tuple[HeaderParameter, ...]]], None],
    ) -> None:
        self._link = link
        self._meta = meta
        self._done = done
        self._learned = learned
        self._tools: dict[str, tuple[HeaderParameter, ...]] = {}
        self._pages = 0
        self._last = b""

    def ask(self, cursor: str | None) -> None:
        self._pages += 1
        params = {"_meta": self._meta} | ({} if cursor is None else {"cursor": encode(cursor)})
        body = b'{"jsonrpc":"2.0","id":%d,"method":"%b","params":%b}'
        self._link.post(body % (self._pages, _LIST.encode(), encode_members(params)), self, _HEADERS)

    def event(self, data: bytes) -> None:
        self._last = data  # the answer is the last of a stream

    def over(self, post: Post, body: bytes) -> None:
        try:
            page = msgspec.json.decode(self._last if post.streamed else body, type=_PageAnswer).result
            self._read(page)
        except (msgspec.MsgspecError, RecursionError):
            self._done()
            return
        if page.next_cursor is not None and self._pages < _MAX_PAGES:
            self.ask(page.next_cursor)
        else:
            self._learned(self._tools)
            self._done()

    def _read(self, page: _Page) -> None:
        for definition in page.tools:
            try:
                header_parameters = header_parameters_of(bytes(definition))
            except BadAnnotation:
                continue
            if header_parameters:
                self._tools[msgspec.json.decode(definition, type=_Tool).name] = header_parameters

    def lost(self, post: Post, reason: str) -> None:
        self._done()

    def tick(self) -> None: ...


def _members(raw: msgspec.Raw | None) -> Members:
    try:
        return {} if raw is None else members_of(raw, "`params`")
    except BadMessage:
        return {}


def _text(members: Members, name: str) -> str:
    try:
        return text_member(members, name) or ""
    except BadMessage:
        return ""
