"""What every MCP door does with a client's message: the methods of both eras, and the news clients asked for."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Hashable
from dataclasses import replace
from functools import lru_cache
from typing import Final

from trunkline.core.call import Caller
from trunkline.core.errors import CANCELLED as CALL_CANCELLED
from trunkline.core.errors import INVALID_PARAMS, UNKNOWN_METHOD, Problem
from trunkline.doors.mcp.answer import Answer, refuse, result_of_ours
from trunkline.doors.mcp.calls import ClientCalls, ToolCall
from trunkline.router.router import Router
from trunkline.version import __version__
from trunkline.wire.jsonrpc import (
    BadMessage,
    Members,
    Message,
    encode,
    encode_notification,
    members_of,
    text_member,
)
from trunkline.wire.mcp.incoming import LIST_CHANGED, cancelled_id
from trunkline.wire.mcp.legacy import initialize_result
from trunkline.wire.mcp.modern import (
    CLIENT_INFO,
    SERVER_INFO,
    SUBSCRIPTION_ID,
    Refused,
    check_meta,
    check_version,
)
from trunkline.wire.mcp.versions import SUPPORTED, negotiate

INFO: Final = {"name": "trunkline", "title": "Trunkline", "version": __version__}
CAPABILITIES: Final[dict[str, object]] = {"tools": {"listChanged": True}}
MAX_SUBSCRIPTIONS: Final = 1024
_SETTLE_S: Final = 0.05
_CLIENT_NAME_LIMIT: Final = 64
_REMEMBERED_BYTES: Final = 1024
_HINTS: Final = b'"ttlMs":0,"cacheScope":"private","_meta":{"%b":%b}' % (SERVER_INFO.encode(), encode(INFO))


class Conversation:
    """A legacy client after (or before) its handshake: an HTTP session, or the one client of a stdio door."""

    def __init__(self, caller: Caller, max_calls: int) -> None:
        self.caller = caller
        self.version = ""
        self.calls = ClientCalls(max_calls)
        self.told_listing: bytes | None = None
        self.push: Callable[[bytes], None] | None = None
        """Sends a message to this client outside any request; None while there is no way to."""


class Subscription:
    """A modern client's open `subscriptions/listen`."""

    __slots__ = ("_id_json", "answer", "tools")

    def __init__(self, answer: Answer, id_json: bytes, *, tools: bool) -> None:
        self.answer = answer
        self.tools = tools
        self._id_json = id_json

    def acknowledge(self) -> None:
        honoured = b'"toolsListChanged":true' if self.tools else b""
        self._notify("notifications/subscriptions/acknowledged", b'"notifications":{%b},' % honoured)

    def tell_tools_changed(self) -> None:
        if self.tools:
            self._notify(LIST_CHANGED)

    def end(self) -> None:
        """We close it: its request is answered at last, which tells a client that nothing was lost."""
        self.answer.result(result_of_ours(b'{"resultType":"complete",%b}' % self._meta()))

    def _notify(self, method: str, body: bytes = b"") -> None:
        self.answer.notice(encode_notification(method, b"{%b%b}" % (body, self._meta())))

    def _meta(self) -> bytes:
        return b'"_meta":{"%b":%b}' % (SUBSCRIPTION_ID.encode(), self._id_json)


class McpServer:
    def __init__(self, router: Router, *, max_calls_per_client: int) -> None:
        self.router = router
        self.max_calls = max_calls_per_client
        self.conversations: set[Conversation] = set()
        self._subscriptions: dict[Hashable, Subscription] = {}
        self._stateless: dict[str, ClientCalls] = {}
        self._telling: asyncio.TimerHandle | None = None
        self._told_listing = router.catalog.listing
        self._loop = asyncio.get_running_loop()
        router.roster.on_list_changed.append(self._list_changed)

    # -- the legacy era -------------------------------------------------------------------------------------------

    def legacy_request(self, conversation: Conversation, message: Message, answer: Answer) -> None:
        method = message.method
        try:
            params = {} if message.params is None else members_of(message.params, "`params`", message.id_json)
            if method == "tools/call":
                meta = params.get("_meta")
                members = None if meta is None else members_of(meta, "`_meta`", message.id_json)
                call = ToolCall(answer, conversation.calls, message.id, modern=False)
                call.start(self.router, conversation.caller, params, members)
            elif method == "tools/list":
                self._list_tools(conversation, conversation.caller, answer, params)
            elif method == "ping":
                answer.result(result_of_ours(b"{}"))
            elif method == "initialize":
                self._initialize(conversation, params, answer)
            else:
                refuse(answer, _unknown_method(method))
        except BadMessage as error:
            refuse(answer, error.problem)

    def _initialize(self, conversation: Conversation, params: Members, answer: Answer) -> None:
        version = _text_or_none(params, "protocolVersion")
        if version is None:
            refuse(answer, Problem(code=INVALID_PARAMS, message="`params.protocolVersion` must be a string"))
            return
        conversation.version = negotiate(version)
        conversation.caller = replace(conversation.caller, client=client_name(bytes(params.get("clientInfo", b"{}"))))
        conversation.told_listing = self.router.views.of(conversation.caller).listing
        self.conversations.add(conversation)
        answer.result(result_of_ours(initialize_result(conversation.version, CAPABILITIES, INFO, "")))

    def legacy_notification(self, conversation: Conversation, message: Message) -> None:
        """Only `cancelled` needs anything done; the rest is news that we have no use for."""
        request_id = cancelled_id(message)
        if request_id is not None:
            conversation.calls.cancel(request_id, "the client took it back")

    def end(self, conversation: Conversation, why: str) -> None:
        """The client is gone, and with it everything that was held for it."""
        self.conversations.discard(conversation)
        conversation.push = None
        conversation.calls.cancel_all(why)
        if conversation.caller.session is not None:
            self.router.roster.forget(conversation.caller.session)

    # -- the modern era -------------------------------------------------------------------------------------------

    def modern_request(
        self,
        message: Message,
        answer: Answer,
        principal: str,
        key: Hashable,
        check: Callable[[str, str, Members], None] | None = None,
    ) -> None:
        """A request that describes itself. `key` names it among those in flight; `check` compares headers."""
        try:
            params = {} if message.params is None else members_of(message.params, "`params`", message.id_json)
            meta = members_of(params["_meta"], "`_meta`", message.id_json) if "_meta" in params else {}
            version = check_meta(meta)
            if check is not None:
                check(version, message.method or "", params)
            check_version(version)
            self._serve_modern(message, params, meta, answer, principal, key)
        except Refused as refused:
            refuse(answer, refused.problem, dict(refused.extra) if refused.extra is not None else None)
        except BadMessage as error:
            refuse(answer, error.problem)

    def _serve_modern(
        self, message: Message, params: Members, meta: Members, answer: Answer, principal: str, key: Hashable
    ) -> None:
        method = message.method
        if method == "tools/call":
            calls = self._stateless.setdefault(principal, ClientCalls(self.max_calls))
            caller = Caller(principal, client=client_name(bytes(meta.get(CLIENT_INFO, b"{}"))))
            ToolCall(answer, calls, key, modern=True).start(self.router, caller, params, meta)
        elif method == "tools/list":
            self._list_tools(None, Caller(principal), answer, params)
        elif method == "server/discover":
            versions = encode({"supportedVersions": SUPPORTED, "capabilities": CAPABILITIES})
            hello = b'{"resultType":"complete",%b,%b}' % (versions[1:-1], _HINTS)
            answer.result(result_of_ours(hello))
        elif method == "subscriptions/listen":
            self._subscribe(message, params, answer, key)
        else:
            refuse(answer, _unknown_method(method))

    def cancel_modern(self, principal: str, key: Hashable, why: str) -> None:
        """The stream was closed, or over stdio a `cancelled` came: end what it stood for."""
        subscription = self._subscriptions.pop(key, None)
        calls = self._stateless.get(principal)
        if subscription is not None:
            subscription.answer.cancelled(Problem(code=CALL_CANCELLED, message=why))
        elif calls is not None:
            calls.cancel(key, why)

    def _subscribe(self, message: Message, params: Members, answer: Answer, key: Hashable) -> None:
        if len(self._subscriptions) >= MAX_SUBSCRIPTIONS:
            refuse(answer, Problem(code=INVALID_PARAMS, message="Too many open subscriptions", retryable=True))
            return
        wanted = params.get("notifications")
        kinds = {} if wanted is None else members_of(wanted, "`notifications`", message.id_json)
        tools = bytes(kinds.get("toolsListChanged", b"false")) == b"true"
        subscription = self._subscriptions[key] = Subscription(answer, message.id_json, tools=tools)
        subscription.acknowledge()

    def end_subscriptions(self) -> None:
        """For a door that closes: every open one is answered."""
        subscriptions, self._subscriptions = self._subscriptions, {}
        for subscription in subscriptions.values():
            subscription.end()

    # -- lists and news -------------------------------------------------------------------------------------------

    def _list_tools(self, conversation: Conversation | None, caller: Caller, answer: Answer, params: Members) -> None:
        """A client that has just seen the list need not be told that it changed before."""
        if "cursor" in params:
            refuse(answer, Problem(code=INVALID_PARAMS, message="Unknown `cursor`: the list comes in one page"))
            return

        def give() -> None:
            listing = self.router.views.of(caller).listing
            if conversation is None:
                answer.result(result_of_ours(b'{"resultType":"complete","tools":%b,%b}' % (listing, _HINTS)))
            else:
                conversation.told_listing = listing
                answer.result(result_of_ours(b'{"tools":%b}' % listing))

        self.router.when_listed(give)

    def _list_changed(self) -> None:
        """Servers tend to come up together: one notification for all that changes in a moment."""
        if self._telling is None:
            self._telling = self._loop.call_later(_SETTLE_S, self._tell)

    def _tell(self) -> None:
        self._telling = None
        self.router.report_collisions()
        message = encode_notification(LIST_CHANGED)
        for conversation in list(self.conversations):
            listing = self.router.views.of(conversation.caller).listing
            if listing != conversation.told_listing and conversation.push is not None:
                conversation.told_listing = listing
                conversation.push(message)
        before, self._told_listing = self._told_listing, self.router.catalog.listing
        if self._told_listing == before:
            return
        for subscription in list(self._subscriptions.values()):
            subscription.tell_tools_changed()

    def close(self) -> None:
        if self._telling is not None:
            self._telling.cancel()
        for conversation in list(self.conversations):
            self.end(conversation, "the gateway is shutting down")
        for calls in self._stateless.values():
            calls.cancel_all("the gateway is shutting down")


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


def _unknown_method(method: str | None) -> Problem:
    return Problem(code=UNKNOWN_METHOD, message=f"Unknown method: {method}")
