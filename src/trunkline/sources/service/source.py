"""A service as a source: its tools are listed from time to time, and each call is one POST.

The service keeps nothing between calls. Listing its tools shows whether it is up; a call that does not reach it starts
the next listing at once.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable, Mapping
from typing import Final

from msgspec import Raw

from trunkline.core.call import QUEUED, SENT, Call, Caller, Failure, Outcome, Request, Result
from trunkline.core.errors import (
    ANSWER_TOO_LARGE,
    NO_SESSION_TOKEN,
    SOURCE_LOST,
    SOURCE_PROTOCOL,
    SOURCE_START_FAILED,
    UNKNOWN_METHOD,
    Code,
    Phase,
    Problem,
)
from trunkline.core.source import Health, Sink, ToolsOnlySource
from trunkline.core.tool import Snapshot, ToolDefinition
from trunkline.protocol.http1 import request_head
from trunkline.protocol.jsonrpc import encode, members_of
from trunkline.protocol.mcp.methods import TOOLS_CALL
from trunkline.protocol.mcp.tool_results import error_result, tool_result
from trunkline.protocol.service import (
    EXECUTE,
    TOOLS,
    BadServiceResponse,
    execute_body,
    parse_execute_response,
    parse_tool_listing,
    usable_tools,
)
from trunkline.runtime.child_io import head_text, safe_text
from trunkline.runtime.http_client import (
    Exchange,
    ExchangeFailure,
    HttpPool,
    HttpResponse,
    HttpTarget,
    RequestFailed,
    send_request,
)
from trunkline.runtime.server_lifecycle import HealthTracker, RetryBackoff
from trunkline.runtime.source_context import SessionTokens, SourceContext
from trunkline.sources.service import EVERYBODY, DeclaredTool, ServiceSection

LIST_EVERY_S: Final = 30.0
_LIST_S: Final = 10.0
_FAILED_LISTS: Final = 3
_NO_LIST: Final = frozenset({401, 403, 404, 405, 501})
"""Statuses of services that do not list their tools, or not to us."""
_MAX_CACHED_HEADS: Final = 1000
_JSON: Final = b"application/json"
_KEPT_BYTES: Final = 16 * 1024
_SHOWN_CHARACTERS: Final = 2 * 1024
_EXCERPT_CHARACTERS: Final = 300


class ExecuteRequest(Exchange):
    """One call on its way to the service. `on_finished` gets its outcome, and whether the service was reached."""

    __slots__ = ("_kept_bytes", "_on_finished", "_parts", "_redact", "_status", "_token", "call")

    def __init__(
        self,
        call: Call,
        out: bytes,
        token: str,
        redact: Callable[[str], str],
        on_finished: Callable[[ExecuteRequest, Outcome, bool], None],
    ) -> None:
        super().__init__(out)
        self.call = call
        self._token = token
        self._redact = redact
        self._on_finished = on_finished
        self._status = 0
        self._parts: list[bytes] = []
        self._kept_bytes = 0

    def on_head(self, status: int, headers: Mapping[bytes, bytes]) -> None:
        self._status = status

    def on_body(self, data: bytes) -> None:
        """Collect the body, of an error only the beginning."""
        if self._status == 200 or self._kept_bytes < _KEPT_BYTES:
            self._parts.append(data)
            self._kept_bytes += len(data)

    def on_end(self) -> None:
        body = self._parts[0] if len(self._parts) == 1 else b"".join(self._parts)
        self._on_finished(self, self._executed(body) if self._status == 200 else self._refused(body), True)

    def on_fail(self, reason: str, failure: ExchangeFailure = "connection") -> None:
        code = SOURCE_LOST if self.written else SOURCE_START_FAILED
        code = ANSWER_TOO_LARGE if failure == "too_large" else SOURCE_PROTOCOL if failure == "malformed" else code
        self._on_finished(self, Failure(self._problem(code, reason)), failure == "too_large")

    def _executed(self, body: bytes) -> Outcome:
        try:
            executed = parse_execute_response(body)
        except BadServiceResponse as error:
            excerpt = shown_body(body, self._token, self._redact)[:_EXCERPT_CHARACTERS]
            reason = f"the answer is not the result of a tool: {error}: {excerpt!r}"
            return Failure(self._problem(SOURCE_PROTOCOL, reason))
        meta = None if executed.metadata is None else {"metadata": executed.metadata}
        raw = tool_result(executed.output, meta=meta)
        return Result(raw, raw)

    def _refused(self, body: bytes) -> Outcome:
        """A tool error: the service answered, so it is up, and its text is for the caller of the tool."""
        text = f"Service {self.call.source} answered HTTP {self._status}"
        if 300 <= self._status < 400:
            text += ", and redirects are not followed"
        shown = shown_body(body, self._token, self._redact)
        text += f": {shown}" if shown else ""
        if self._status in (401, 403):
            text += "\nThe service does not accept the token of this session; its operator can provide another one"
        raw = error_result(text)
        return Result(raw, raw)

    def _problem(self, code: Code, reason: str) -> Problem:
        call = self.call
        return Problem(
            code=code,
            message=f"Server {call.source}: {reason}",
            source=call.source,
            tool=call.tool,
            phase="sent" if self.written else "queued",
            executed="unknown" if self.written else "no",
            retryable=not self.written,
        )


def shown_body(body: bytes, token: str | None, redact: Callable[[str], str]) -> str:
    """The text of an answer as people see it. It is cut after redaction: half a token would not be recognised."""

    def without_secrets(text: str) -> str:
        return redact(text.replace(token, "***") if token else text)

    return safe_text(head_text(body, _KEPT_BYTES), without_secrets).strip()[:_SHOWN_CHARACTERS]


class Tokens:
    """The tokens for callers: the most specific first, and configured ones before those that an operator handed in."""

    def __init__(self, configured: Mapping[str, str], handed_in: SessionTokens) -> None:
        self._configured = configured
        self._handed_in = handed_in

    def of(self, caller: Caller) -> str | None:
        for holder in (caller.session, caller.principal, EVERYBODY):
            if holder is not None:
                token = self._configured.get(holder) or self._handed_in.get(holder)
                if token:
                    return token
        return None

    @property
    def of_everybody(self) -> str | None:
        return self._configured.get(EVERYBODY) or self._handed_in.get(EVERYBODY)

    def session_id(self, caller: Caller) -> str:
        """The session id for the service. An alias replaces the client's own, with which the service could act as that
        client, unless the configuration names it."""
        session = caller.session
        if session is None:
            return caller.principal
        return session if session in self._configured else self._handed_in.alias(session)

    def forget(self, session: str) -> None:
        self._handed_in.drop(session)


class ServiceSource(ToolsOnlySource):
    def __init__(
        self, name: str, section: ServiceSection, context: SourceContext, *, list_every_s: float = LIST_EVERY_S
    ) -> None:
        self.name = name
        endpoint = section.endpoint.rstrip("/")
        self._execute, self._tools = HttpTarget(endpoint + EXECUTE), HttpTarget(endpoint + TOOLS)
        self._connect_timeout_s = section.connect_timeout
        self._limit_bytes = context.message_bytes
        self._redact = context.redact
        self._tokens = Tokens(section.tokens, context.session_tokens)
        self._declared = usable_tools(Raw(encode(_definition(tool))) for tool in section.declare)
        self._list_every_s = list_every_s
        self._pool: HttpPool | None = None
        self._posts: dict[Request, ExecuteRequest] = {}
        self._heads: dict[str, bytes] = {}
        self._sink: Sink | None = None
        self._published: Snapshot | None = None
        self._list_now = asyncio.Event()
        self._failed_lists = 0
        self._backoff = RetryBackoff()
        self._health_tracker = HealthTracker(name, self._health_changed)

    # -- calls --------------------------------------------------------------------------------------------------------

    def submit(self, call: Call) -> None:
        token = self._tokens.of(call.caller)
        if self._pool is None:
            call.finish(Failure(self._health_tracker.refusal(call.tool)))
        elif call.method != TOOLS_CALL:
            call.finish(Failure(self._problem(UNKNOWN_METHOD, "a service has only tools")))
        elif token is None:
            call.finish(Failure(self._no_token(call)))
        else:
            post = ExecuteRequest(call, self._request(call, token), token, self._redact, self._finished)
            self._posts[call] = post
            call.upstream = self
            self._pool.send(post)

    def _request(self, call: Call, token: str) -> bytes:
        arguments = members_of(bytes(call.params), "params").get("arguments", b"{}")
        body = execute_body(self.name, self._tokens.session_id(call.caller), call.tool, arguments)
        return b"%bcontent-length: %d\r\n\r\n%b" % (self._head(token), len(body), body)

    def _head(self, token: str) -> bytes:
        """The request's head without the length, cached by token."""
        head = self._heads.get(token)
        if head is None:
            if len(self._heads) >= _MAX_CACHED_HEADS:
                self._heads.clear()
            headers = [*self._headers(token), (b"content-type", _JSON)]
            head = self._heads[token] = request_head(b"POST", self._execute.path, headers)[:-2]
        return head

    def _headers(self, token: str | None) -> list[tuple[bytes, bytes]]:
        headers = [(b"host", self._execute.authority), (b"accept", _JSON)]
        return headers if token is None else [*headers, (b"authorization", b"Bearer %b" % token.encode())]

    def _no_token(self, call: Call) -> Problem:
        holder = "client" if call.caller.session is None else "session"
        return Problem(
            code=NO_SESSION_TOKEN,
            message=f"Server {self.name}: there is no token for this {holder}",
            source=self.name,
            tool=call.tool,
            hint=f"give it one under `tokens` of `{self.name}`, or with `PUT /api/sessions/ID/token`",
        )

    def _finished(self, post: ExecuteRequest, outcome: Outcome, reached: bool) -> None:
        self._posts.pop(post.call, None)
        if not reached:
            self._list_now.set()
        post.call.finish(outcome)

    # -- the carrier of calls -----------------------------------------------------------------------------------------

    def phase_of(self, request: Request) -> Phase:
        post = self._posts.get(request)
        return SENT if post is None or post.written else QUEUED

    def abandon(self, request: Request) -> None:
        post = self._posts.pop(request, None)
        if post is not None:
            post.abort()

    def forget(self, session: str) -> None:
        self._tokens.forget(session)

    # -- lifecycle ----------------------------------------------------------------------------------------------------

    async def run(self, sink: Sink) -> None:
        self._sink = sink
        self._pool, listing = self._open(self._execute, 512), self._open(self._tools, 1)
        if self._declared.definitions:
            self._publish({}, ())
        try:
            while True:
                self._list_now.clear()
                delay_s = self._list_every_s if await self._list_tools(listing) else self._backoff.next_delay_s()
                with contextlib.suppress(TimeoutError):
                    async with asyncio.timeout(delay_s):
                        await self._list_now.wait()
        finally:
            pool, self._pool = self._pool, None
            await self._end(pool, listing)

    def _open(self, target: HttpTarget, most: int) -> HttpPool:
        """Open a pool. Listing has a connection of its own: waiting for calls, a busy service would seem down."""
        timeout_s, limit_bytes = self._connect_timeout_s, self._limit_bytes
        return HttpPool(target, connect_timeout_s=timeout_s, limit_bytes=limit_bytes, max_connections=most)

    async def _end(self, *pools: HttpPool) -> None:
        for post in list(self._posts.values()):
            post.abort()
            post.on_fail("the server was stopped")
        for pool in pools:
            await pool.close()

    async def _list_tools(self, pool: HttpPool) -> bool:
        """List the tools; returns whether the service is up."""
        token = self._tokens.of_everybody
        head = request_head(b"GET", self._tools.path, self._headers(token))
        try:
            reply = await send_request(pool, head, _LIST_S)
        except RequestFailed as fault:
            return self._on_no_answer(fault)
        self._failed_lists = 0
        self._backoff.up()
        return self._on_answer(reply, token)

    def _on_no_answer(self, fault: RequestFailed) -> bool:
        """A service that cannot be reached is down; a slow one may just be busy, and is down after a few tries."""
        self._failed_lists += 1
        is_up = self._health_tracker.health.state in ("ready", "degraded")
        if is_up and fault.sent and self._failed_lists < _FAILED_LISTS:
            self._health_tracker.degraded(f"it did not list its tools: {fault}")
            return True
        self._health_tracker.failed(self._problem(SOURCE_LOST if fault.sent else SOURCE_START_FAILED, str(fault)))
        return False

    def _on_answer(self, reply: HttpResponse, token: str | None) -> bool:
        trouble = ""
        if reply.status == 200:
            try:
                listed = parse_tool_listing(reply.body)
                self._publish(listed.definitions, listed.warnings)
            except BadServiceResponse as error:
                trouble = f"`GET {TOOLS}` was not answered with a list of tools: {error}"
        elif reply.status not in _NO_LIST:
            shown = shown_body(reply.body, token, self._redact)[:_EXCERPT_CHARACTERS]
            trouble = f"`GET {TOOLS}` was answered with HTTP {reply.status}: {shown}"
        elif not self._declared.definitions:
            trouble = f"`GET {TOOLS}` was answered with HTTP {reply.status}, and no tools are declared"
        if not trouble:
            if self._published is None:
                self._publish({}, ())
            self._health_tracker.ready()
        elif self._published is not None:
            self._health_tracker.degraded(trouble)
        else:
            hint = "name its tools under `declare`"
            self._health_tracker.failed(self._problem(SOURCE_PROTOCOL, trouble, hint))
            return False
        return True

    # -- reporting ----------------------------------------------------------------------------------------------------

    def _publish(self, listed: dict[str, bytes], warnings: tuple[str, ...]) -> None:
        """Publish the tools; a declared definition replaces the one that the service lists."""
        definitions = {**listed, **self._declared.definitions}
        tools = tuple(ToolDefinition(self.name, name, definition) for name, definition in definitions.items())
        snapshot = Snapshot(tools=tools, warnings=(*self._declared.warnings, *warnings))
        if self._sink is not None and snapshot != self._published:
            self._published = snapshot
            self._sink.publish(snapshot)

    def _problem(self, code: Code, reason: str, hint: str = "") -> Problem:
        return Problem(code=code, message=f"Server {self.name}: {reason}", source=self.name, hint=hint)

    def _health_changed(self, health: Health) -> None:
        if self._sink is not None:
            self._sink.health(health)


def _definition(tool: DeclaredTool) -> dict[str, object]:
    given = {name: getattr(tool, name) for name in ("name", "title", "description")}
    objects = {name: getattr(tool, name) for name in ("inputSchema", "outputSchema", "annotations")}
    return {name: value for name, value in (given | objects).items() if value}
