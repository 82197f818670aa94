"""A service as a source: asked for its tools from time to time, and one POST for each call.

It keeps nothing between calls: whoever calls next is as welcome as the first. Whether the service is there shows when
it is asked for its tools; a call that does not reach it is a reason to ask at once.
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
from trunkline.runtime.http_client import Exchange, HttpPool, HttpResponse, HttpTarget, RequestFailed, send_request
from trunkline.runtime.server_lifecycle import HealthTracker, RetryBackoff
from trunkline.runtime.source_context import SessionTokens, SourceContext
from trunkline.sources.service import EVERYBODY, DeclaredTool, ServiceSection

# One execution on its way to a service, and what its answer means to the caller.

_KEPT_BYTES: Final = 16 * 1024
_POST_SHOWN_CHARACTERS: Final = 2 * 1024
_EXCERPT_CHARACTERS: Final = 300
_METADATA: Final = "metadata"
_HIDDEN: Final = "***"


class ExecuteRequest(Exchange):
    """`on_over` is told how the call ended, and whether the service could be reached."""

    __slots__ = ("_kept_bytes", "_on_over", "_parts", "_redact", "_status", "_token", "call")

    def __init__(
        self,
        call: Call,
        out: bytes,
        token: str,
        redact: Callable[[str], str],
        on_over: Callable[[ExecuteRequest, Outcome, bool], None],
    ) -> None:
        super().__init__(out)
        self.call = call
        self._token = token
        self._redact = redact
        self._on_over = on_over
        self._status = 0
        self._parts: list[bytes] = []
        self._kept_bytes = 0

    def on_head(self, status: int, headers: Mapping[bytes, bytes]) -> None:
        self._status = status

    def on_body(self, data: bytes) -> None:
        """Of an error only the beginning is of interest."""
        if self._status == 200 or self._kept_bytes < _KEPT_BYTES:
            self._parts.append(data)
            self._kept_bytes += len(data)

    def on_end(self) -> None:
        body = self._parts[0] if len(self._parts) == 1 else b"".join(self._parts)
        self._on_over(self, self._executed(body) if self._status == 200 else self._refused(body), True)

    def on_fail(self, reason: str, *, too_large: bool = False, malformed: bool = False) -> None:
        code = SOURCE_LOST if self.written else SOURCE_START_FAILED
        code = ANSWER_TOO_LARGE if too_large else SOURCE_PROTOCOL if malformed else code
        self._on_over(self, Failure(self._problem(code, reason)), too_large)

    def _executed(self, body: bytes) -> Outcome:
        try:
            executed = parse_execute_response(body)
        except BadServiceResponse as error:
            said = self._said(body)[:_EXCERPT_CHARACTERS]
            return Failure(self._problem(SOURCE_PROTOCOL, f"the answer is not the result of a tool: {error}: {said!r}"))
        meta = None if executed.metadata is None else {_METADATA: executed.metadata}
        raw = tool_result(executed.output, meta=meta)
        return Result(raw, raw)

    def _refused(self, body: bytes) -> Outcome:
        """The service answered, so it is well; what it says is for whoever called the tool."""
        text = f"Service {self.call.source} answered HTTP {self._status}"
        if 300 <= self._status < 400:
            text += ", and redirects are not followed"
        said = self._said(body)
        text += f": {said}" if said else ""
        if self._status in (401, 403):
            text += "\nThe service does not take the token of this session; its operator can give another one"
        raw = error_result(text)
        return Result(raw, raw)

    def _said(self, body: bytes) -> str:
        return said_in(body, self._token, self._redact)

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


def said_in(body: bytes, token: str | None, redact: Callable[[str], str]) -> str:
    """What a service said, for people. Some repeat what they were sent; half a token would not be recognised as one, so
    the text is cut last."""
    text = head_text(body, _KEPT_BYTES)
    text = text.replace(token, _HIDDEN) if token else text
    return safe_text(text, redact).strip()[:_POST_SHOWN_CHARACTERS]


# Which token a service is shown for a caller, and by which name it knows the caller's session.


class Tokens:
    """The file's word goes before what an operator handed in, and what is closest to the caller before all else."""

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
        """A client's own session id would let the service act as that client, so it is not told. One that the file
        names is no secret."""
        session = caller.session
        if session is None:
            return caller.principal
        return session if session in self._configured else self._handed_in.alias(session)

    def forget(self, session: str) -> None:
        self._handed_in.drop(session)


ASK_EVERY_S: Final = 30.0
_ASK_S: Final = 10.0
_FAILED_ASKS: Final = 3
_NO_LIST: Final = frozenset({401, 403, 404, 405, 501})
"""How a service answers that does not list its tools, or not to us."""
_SHOWN_CHARACTERS: Final = 300
_REMEMBERED_HEADS: Final = 1000
_JSON: Final = b"application/json"
_NO_ARGUMENTS: Final = b"{}"


class ServiceSource(ToolsOnlySource):
    def __init__(
        self, name: str, section: ServiceSection, context: SourceContext, *, ask_every_s: float = ASK_EVERY_S
    ) -> None:
        self.name = name
        endpoint = section.endpoint.rstrip("/")
        self._execute, self._tools = HttpTarget(endpoint + EXECUTE), HttpTarget(endpoint + TOOLS)
        self._connect_timeout_s = section.connect_timeout
        self._limit_bytes = context.message_bytes
        self._redact = context.redact
        self._tokens = Tokens(section.tokens, context.session_tokens)
        self._declared = usable_tools(Raw(encode(_definition(tool))) for tool in section.declare)
        self._ask_every_s = ask_every_s
        self._pool: HttpPool | None = None
        self._posts: dict[Request, ExecuteRequest] = {}
        self._heads: dict[str, bytes] = {}
        self._sink: Sink | None = None
        self._published: Snapshot | None = None
        self._doubt = asyncio.Event()
        self._failed_asks = 0
        self._backoff = RetryBackoff()
        self._health_tracker = HealthTracker(name, self._health_changed)

    # -- calls ----------------------------------------------------------------------------------------------------

    def submit(self, call: Call) -> None:
        token = self._tokens.of(call.caller)
        if self._pool is None:
            call.finish(Failure(self._health_tracker.refusal(call.tool)))
        elif call.method != TOOLS_CALL:
            call.finish(Failure(self._problem(UNKNOWN_METHOD, "a service has tools and nothing else")))
        elif token is None:
            call.finish(Failure(self._no_token(call)))
        else:
            post = ExecuteRequest(call, self._request(call, token), token, self._redact, self._over)
            self._posts[call] = post
            call.upstream = self
            self._pool.send(post)

    def _request(self, call: Call, token: str) -> bytes:
        arguments = members_of(bytes(call.params), "params").get("arguments", _NO_ARGUMENTS)
        body = execute_body(self.name, self._tokens.session_id(call.caller), call.tool, arguments)
        return b"%bcontent-length: %d\r\n\r\n%b" % (self._head(token), len(body), body)

    def _head(self, token: str) -> bytes:
        """Everything of the head but the length: it is the same for every call with one token."""
        head = self._heads.get(token)
        if head is None:
            if len(self._heads) >= _REMEMBERED_HEADS:
                self._heads.clear()
            headers = [*self._headers(token), (b"content-type", _JSON)]
            head = self._heads[token] = request_head(b"POST", self._execute.path, headers)[:-2]
        return head

    def _headers(self, token: str | None) -> list[tuple[bytes, bytes]]:
        headers = [(b"host", self._execute.authority), (b"accept", _JSON)]
        return headers if token is None else [*headers, (b"authorization", b"Bearer %b" % token.encode())]

    def _no_token(self, call: Call) -> Problem:
        return Problem(
            code=NO_SESSION_TOKEN,
            message=f"Server {self.name}: there is no token for this {_holder(call.caller)}",
            source=self.name,
            tool=call.tool,
            hint=f"give it one under `tokens` of `{self.name}`, or with `PUT /api/sessions/ID/token`",
        )

    def _over(self, post: ExecuteRequest, outcome: Outcome, reached: bool) -> None:
        self._posts.pop(post.call, None)
        if not reached:
            self._doubt.set()
        post.call.finish(outcome)

    # as the carrier of calls
    def phase_of(self, request: Request) -> Phase:
        post = self._posts.get(request)
        return SENT if post is None or post.written else QUEUED

    def abandon(self, request: Request) -> None:
        post = self._posts.pop(request, None)
        if post is not None:
            post.abort()

    def forget(self, session: str) -> None:
        self._tokens.forget(session)

    # -- life -----------------------------------------------------------------------------------------------------

    async def run(self, sink: Sink) -> None:
        self._sink = sink
        self._pool, asking = self._open(self._execute, 512), self._open(self._tools, 1)
        if self._declared.definitions:
            self._publish({}, ())
        try:
            while True:
                self._doubt.clear()
                delay_s = self._ask_every_s if await self._ask(asking) else self._backoff.next_delay_s()
                with contextlib.suppress(TimeoutError):
                    async with asyncio.timeout(delay_s):
                        await self._doubt.wait()
        finally:
            pool, self._pool = self._pool, None
            await self._end(pool, asking)

    def _open(self, target: HttpTarget, most: int) -> HttpPool:
        """Questions have a connection of their own: they must not wait for calls, or a busy service would seem gone."""
        timeout_s, limit_bytes = self._connect_timeout_s, self._limit_bytes
        return HttpPool(target, connect_timeout_s=timeout_s, limit_bytes=limit_bytes, max_connections=most)

    async def _end(self, *pools: HttpPool) -> None:
        for post in list(self._posts.values()):
            post.on_fail("the server was stopped")
            post.abort()
        for pool in pools:
            await pool.close()

    async def _ask(self, pool: HttpPool) -> bool:
        """Ask for its tools; whether it is there."""
        token = self._tokens.of_everybody
        head = request_head(b"GET", self._tools.path, self._headers(token))
        try:
            reply = await send_request(pool, head, _ASK_S)
        except RequestFailed as fault:
            return self._was_silent(fault)
        self._failed_asks = 0
        self._backoff.up()
        return self._was_told(reply, token)

    def _was_silent(self, fault: RequestFailed) -> bool:
        """One that cannot be reached is down. One that is slow may just be busy, and is so only after a while."""
        self._failed_asks += 1
        is_up = self._health_tracker.health.state in ("ready", "degraded")
        if is_up and fault.sent and self._failed_asks < _FAILED_ASKS:
            self._health_tracker.degraded(f"it did not list its tools: {fault}")
            return True
        self._health_tracker.failed(self._problem(SOURCE_LOST if fault.sent else SOURCE_START_FAILED, str(fault)))
        return False

    def _was_told(self, reply: HttpResponse, token: str | None) -> bool:
        trouble = ""
        if reply.status == 200:
            try:
                listed = parse_tool_listing(reply.body)
                self._publish(listed.definitions, listed.warnings)
            except BadServiceResponse as error:
                trouble = f"`GET {TOOLS}` was answered with something else: {error}"
        elif reply.status not in _NO_LIST:
            said = said_in(reply.body, token, self._redact)[:_SHOWN_CHARACTERS]
            trouble = f"`GET {TOOLS}` was answered with HTTP {reply.status}: {said}"
        elif not self._declared.definitions:
            trouble = f"`GET {TOOLS}` was answered with HTTP {reply.status}, and no tools are declared"
        if not trouble:
            self._publish_declared_at_least()
            self._health_tracker.ready()
        elif self._published is not None:
            self._health_tracker.degraded(trouble)
        else:
            hint = "name its tools under `declare`"
            self._health_tracker.failed(self._problem(SOURCE_PROTOCOL, trouble, hint))
            return False
        return True

    # -- what others hear of it -----------------------------------------------------------------------------------

    def _publish_declared_at_least(self) -> None:
        if self._published is None:
            self._publish({}, ())

    def _publish(self, listed: dict[str, bytes], warnings: tuple[str, ...]) -> None:
        """What the configuration declares goes before what the service says of the same tool."""
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


def _holder(caller: Caller) -> str:
    return "client" if caller.session is None else "session"
