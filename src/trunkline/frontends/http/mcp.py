"""`/mcp`: Streamable HTTP of every version on one URL; the version of each request decides its era."""

from __future__ import annotations

import asyncio
from functools import partial
from typing import Final

from trunkline.core.errors import (
    BAD_HTTP,
    CLIENT_LIMIT,
    HEADER_MISMATCH,
    INVALID_REQUEST,
    METHOD_NOT_ALLOWED,
    NOT_ACCEPTABLE,
    UNSUPPORTED_VERSION,
    Problem,
)
from trunkline.frontends.http.access import Denied, accepted_types, accepts_stream, check_content_type
from trunkline.frontends.http.exchange import HttpExchange
from trunkline.frontends.http.sessions import HttpSession, HttpSessions
from trunkline.frontends.http.trace_context import copy_trace_headers
from trunkline.frontends.mcp.batches import Batch, as_array
from trunkline.frontends.mcp.server import McpServer
from trunkline.protocol.http1 import HttpRequest
from trunkline.protocol.jsonrpc import (
    BATCH_VERSION,
    BadMessage,
    Members,
    Message,
    encode_error,
    is_batch,
    parse_message,
    split_batch,
    text_member,
)
from trunkline.protocol.mcp.methods import (
    INITIALIZE,
    LOGGING_SET_LEVEL,
    NAME_PARAMETERS,
    PING,
    PROMPTS_LIST,
    RESOURCES_LIST,
    RESOURCES_TEMPLATES_LIST,
    SERVER_DISCOVER,
    SUBSCRIPTIONS_LISTEN,
    TOOLS_CALL,
    TOOLS_LIST,
)
from trunkline.protocol.mcp.modern import RequestRefused, check_headers, is_modern
from trunkline.protocol.mcp.param_headers import check_param_headers
from trunkline.protocol.mcp.versions import LEGACY, SUPPORTED

_SESSION_ID: Final = b"mcp-session-id"
_VERSION: Final = b"mcp-protocol-version"
_LAST_EVENT_ID: Final = b"last-event-id"
_LEGACY: Final = frozenset(version.encode() for version in LEGACY)
_LEGACY_OR_NONE: Final = _LEGACY | {None}
_ANSWERED_SOON: Final = frozenset(
    {
        INITIALIZE,
        PING,
        SERVER_DISCOVER,
        LOGGING_SET_LEVEL,
        TOOLS_LIST,
        PROMPTS_LIST,
        RESOURCES_LIST,
        RESOURCES_TEMPLATES_LIST,
    }
)
"""Methods that the gateway answers itself. Any other may wait for a server, or is a stream."""
TOO_MANY_OPEN: Final = Problem(
    code=CLIENT_LIMIT,
    message="Too many connections wait for an answer or carry a stream (`limits.connections`)",
    retryable=True,
    retry_after_ms=1000,
)
_DUPLICATES_REFUSED: Final = (_SESSION_ID, _VERSION)


class McpRoute:
    """Handles the requests to `/mcp`."""

    def __init__(self, server: McpServer, sessions: HttpSessions) -> None:
        self._server = server
        self._sessions = sessions
        self._loop = asyncio.get_running_loop()

    def handle(self, exchange: HttpExchange, request: HttpRequest, principal: str) -> None:
        try:
            if request.repeated:
                for name in _DUPLICATES_REFUSED:
                    if name in request.repeated:
                        raise Denied(Problem(code=BAD_HTTP, message=f"Header `{name.decode()}` appears more than once"))
            if request.method == b"POST":
                self._post(exchange, request, principal)
            elif request.method == b"GET":
                self._get(exchange, request, principal)
            elif request.method == b"DELETE" and not _is_modern_version(request):
                self._sessions.end(self._session_of(request, principal), "the client ended it")
                exchange.respond(200)
            else:
                raise Denied(_not_allowed(request.method))
        except Denied as denied:
            methods = b"POST" if _is_modern_version(request) else b"GET, POST, DELETE"
            allow = [(b"allow", methods)] if denied.problem.code is METHOD_NOT_ALLOWED else []
            exchange.refuse(denied.problem, allow)
        except BadMessage as error:
            exchange.id_json = error.id_json
            exchange.refuse(error.problem)

    # -- POST -----------------------------------------------------------------------------------------------------

    def _post(self, exchange: HttpExchange, request: HttpRequest, principal: str) -> None:
        headers = request.headers
        check_content_type(request)
        accepts = accepted_types(headers.get(b"accept", b"*/*"))
        exchange.accepts_json, exchange.accepts_events, exchange.prefers_events = accepts
        if not (exchange.accepts_json or exchange.accepts_events):
            message = "Accept must allow `application/json` or `text/event-stream`"
            raise Denied(Problem(code=NOT_ACCEPTABLE, message=message))
        try:
            message = parse_message(request.body)
        except BadMessage:
            if exchange.too_many_open and is_batch(request.body):
                raise Denied(TOO_MANY_OPEN) from None
            if self._post_batch(exchange, request, principal):
                return
            raise
        exchange.id_json = message.id_json
        if exchange.too_many_open and message.id is not None and (message.method or PING) not in _ANSWERED_SOON:
            exchange.error(encode_error(TOO_MANY_OPEN), TOO_MANY_OPEN)
            return
        if (b"traceparent" in headers or b"baggage" in headers) and message.id is not None:
            copy_trace_headers(message, headers)
        version, in_session = headers.get(_VERSION), _SESSION_ID in headers
        if (version in _LEGACY and in_session) or (version in _LEGACY_OR_NONE and not is_modern(message)):
            self._post_legacy(exchange, request, message, principal)
        elif in_session and not is_modern(message):
            refusal = f"Protocol version `{(version or b'').decode('latin-1')}` is not served"
            raise Denied(Problem(code=UNSUPPORTED_VERSION, message=refusal, hint=f"use one of {', '.join(SUPPORTED)}"))
        else:
            self._post_modern(exchange, request, message, principal)

    def _post_legacy(self, exchange: HttpExchange, request: HttpRequest, message: Message, principal: str) -> None:
        if message.method == INITIALIZE and message.id is not None:
            self._open_session(exchange, message, principal)
            return
        session = self._session_of(request, principal)
        if message.method is None or message.id is None:
            self._server.legacy_other(session, message)
            exchange.respond(202)
            return
        exchange.replay = session.replay
        self._server.legacy_request(session, message, exchange)
        if exchange.prefers_events:
            exchange.stream()

    def _post_batch(self, exchange: HttpExchange, request: HttpRequest, principal: str) -> bool:
        """Handle a batch; False if the body is none, or the client's version has none."""
        version = BATCH_VERSION.encode()
        if not is_batch(request.body) or request.headers.get(_VERSION, version) != version:
            return False
        session = self._session_of(request, principal)
        if session.version != BATCH_VERSION:
            return False
        texts = split_batch(request.body)
        exchange.replay = session.replay
        batch = Batch(_HttpBatchTransport(exchange), exchange.back_off)
        exchange.on_streaming = batch.flush
        batch.serve(texts, partial(self._server.legacy_request, session), partial(self._server.legacy_other, session))
        return True

    def _open_session(self, exchange: HttpExchange, message: Message, principal: str) -> None:
        session = self._sessions.create(HttpSession, principal, self._loop.time())
        exchange.add_header(_SESSION_ID, session.id.encode())
        self._server.legacy_request(session, message, exchange)
        if session.version:
            session.enable_replay(self._sessions.replay_budget)
        else:
            self._sessions.end(session, "its handshake failed")

    def _session_of(self, request: HttpRequest, principal: str) -> HttpSession:
        session_id = request.headers.get(_SESSION_ID)
        if session_id is None:
            hint = "send `initialize` first, then its `Mcp-Session-Id` with every request"
            raise Denied(Problem(code=INVALID_REQUEST, message="Header `Mcp-Session-Id` is missing", hint=hint))
        return self._sessions.get(HttpSession, session_id, principal, self._loop.time())

    def _post_modern(self, exchange: HttpExchange, request: HttpRequest, message: Message, principal: str) -> None:
        if message.method is None:
            raise Denied(Problem(code=INVALID_REQUEST, message="Responses are not part of this protocol version"))
        if message.id is None:
            exchange.respond(202)  # acting on a caller-chosen id would let one caller cancel another's call
            return
        if message.method == SUBSCRIPTIONS_LISTEN and not exchange.accepts_events:
            raise Denied(Problem(code=NOT_ACCEPTABLE, message="Accept must allow `text/event-stream`"))
        exchange.errors_set_status = True

        def check(version: str, method: str, params: Members) -> None:
            named_by = NAME_PARAMETERS.get(method)
            name = text_member(params, named_by) if named_by is not None else None
            check_headers(request.headers, request.repeated, version, method, name)
            if method == TOOLS_CALL and name is not None:
                self._check_arguments(request, name, params)

        exchange.on_disconnect = lambda: self._server.cancel_modern(principal, exchange, "the client closed the stream")
        self._server.modern_request(message, exchange, principal, exchange, check)

    def _check_arguments(self, request: HttpRequest, tool: str, params: Members) -> None:
        """Check that the headers that repeat arguments of a tool agree with them."""
        entry = self._server.router.catalog.find(tool)
        if entry is None or entry.header_parameters is None:
            return
        arguments = params.get("arguments", b"{}")
        mismatch = check_param_headers(request.headers, entry.header_parameters, arguments, request.repeated)
        if mismatch is not None:
            hint = "list the tools again, then repeat the call"
            raise RequestRefused(Problem(code=HEADER_MISMATCH, message=mismatch, hint=hint))

    # -- GET: legacy only -----------------------------------------------------------------------------------------

    def _get(self, exchange: HttpExchange, request: HttpRequest, principal: str) -> None:
        if _is_modern_version(request):
            raise Denied(_not_allowed(b"GET"))
        if not accepts_stream(request.headers.get(b"accept", b"*/*")):
            raise Denied(Problem(code=NOT_ACCEPTABLE, message="Accept must allow `text/event-stream`"))
        if exchange.too_many_open:
            raise Denied(TOO_MANY_OPEN)
        session = self._session_of(request, principal)
        last_event_id = request.headers.get(_LAST_EVENT_ID)
        if last_event_id is not None and session.resume(exchange, last_event_id):
            return
        if session.stream is not None:
            exchange.respond(409, b'{"error":"this session already has its stream open"}')
            return
        session.open_stream(exchange)


def _is_modern_version(request: HttpRequest) -> bool:
    version = request.headers.get(_VERSION)
    return version is not None and version not in _LEGACY


def _not_allowed(method: bytes) -> Problem:
    return Problem(code=METHOD_NOT_ALLOWED, message=f"{method.decode('latin-1')} is not allowed here")


class _HttpBatchTransport:
    """Sends the responses to a batch as one array, or as a stream of messages."""

    def __init__(self, exchange: HttpExchange) -> None:
        self._exchange = exchange
        self.notify = exchange.notify
        self.send_request = exchange.send_request

    @property
    def one_by_one(self) -> bool:
        return self._exchange.streaming

    def send(self, message: bytes, *, last: bool) -> None:
        self._exchange.send(message, last=last)

    def finish(self, responses: list[bytes]) -> None:
        exchange = self._exchange
        if exchange.streaming:  # and the last request was cancelled
            exchange.end_unanswered()
        elif not responses:
            exchange.respond(202)
        elif exchange.accepts_json and not exchange.prefers_events:
            exchange.respond(200, as_array(responses))
        else:
            exchange.stream()
