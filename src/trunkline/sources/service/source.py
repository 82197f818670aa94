"""A service as a source: asked for its tools from time to time, and one POST for each call.

It keeps nothing between calls: whoever calls next is as welcome as the first. Whether the service is there shows when
it is asked for its tools; a call that does not reach it is a reason to ask at once.
"""

from __future__ import annotations

import asyncio
import contextlib
from typing import Final

from msgspec import Raw

from trunkline.core.call import QUEUED, SENT, Call, Caller, Failure, Outcome, Request
from trunkline.core.errors import (
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
from trunkline.core.tool import Snapshot, Tool
from trunkline.protocol.http1 import request_head
from trunkline.protocol.jsonrpc import encode, members_of
from trunkline.protocol.service import EXECUTE, TOOLS, BadAnswer, execute_body, read_tools, usable_tools
from trunkline.runtime.http_client import HttpPool, NoReply, Reply, Target, ask
from trunkline.runtime.server_lifecycle import Backoff, HealthTracker
from trunkline.runtime.source_context import Parts
from trunkline.sources.service.post import Post, said_in
from trunkline.sources.service.section import DeclaredTool, ServiceSection
from trunkline.sources.service.tokens import Tokens

ASK_EVERY_S: Final = 30.0
_ASK_S: Final = 10.0
_FAILED_ASKS: Final = 3
_NO_LIST: Final = frozenset({401, 403, 404, 405, 501})
"""How a service answers that does not list its tools, or not to us."""
_SHOWN_CHARACTERS: Final = 300
_REMEMBERED_HEADS: Final = 1000
_JSON: Final = b"application/json"
_NO_ARGUMENTS: Final = b"{}"
_TOOLS_CALL: Final = "tools/call"


class ServiceSource(ToolsOnlySource):
    def __init__(self, name: str, section: ServiceSection, parts: Parts, *, ask_every_s: float = ASK_EVERY_S) -> None:
        self.name = name
        endpoint = section.endpoint.rstrip("/")
        self._execute, self._tools = Target(endpoint + EXECUTE), Target(endpoint + TOOLS)
        self._connect_timeout_s = section.connect_timeout
        self._limit_bytes = parts.message_bytes
        self._redact = parts.redact
        self._tokens = Tokens(section.tokens, parts.session_tokens)
        self._declared = usable_tools(Raw(encode(_definition(tool))) for tool in section.declare)
        self._ask_every_s = ask_every_s
        self._pool: HttpPool | None = None
        self._posts: dict[Request, Post] = {}
        self._heads: dict[str, bytes] = {}
        self._sink: Sink | None = None
        self._published: Snapshot | None = None
        self._doubt = asyncio.Event()
        self._failed_asks = 0
        self._backoff = Backoff()
        self._health_tracker = HealthTracker(name, self._health_changed)

    # -- calls ----------------------------------------------------------------------------------------------------

    def submit(self, call: Call) -> None:
        token = self._tokens.of(call.caller)
        if self._pool is None:
            call.finish(Failure(self._health_tracker.refusal(call.tool)))
        elif call.method != _TOOLS_CALL:
            call.finish(Failure(self._problem(UNKNOWN_METHOD, "a service has tools and nothing else")))
        elif token is None:
            call.finish(Failure(self._no_token(call)))
        else:
            post = Post(call, self._request(call, token), token, self._redact, self._over)
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

    def _over(self, post: Post, outcome: Outcome, reached: bool) -> None:
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

    def _open(self, target: Target, most: int) -> HttpPool:
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
            reply = await ask(pool, head, _ASK_S)
        except NoReply as fault:
            return self._was_silent(fault)
        self._failed_asks = 0
        self._backoff.up()
        return self._was_told(reply, token)

    def _was_silent(self, fault: NoReply) -> bool:
        """One that cannot be reached is down. One that is slow may just be busy, and is so only after a while."""
        self._failed_asks += 1
        is_up = self._health_tracker.health.state in ("ready", "degraded")
        if is_up and fault.sent and self._failed_asks < _FAILED_ASKS:
            self._health_tracker.ailing(f"it did not list its tools: {fault}")
            return True
        self._health_tracker.failed(self._problem(SOURCE_LOST if fault.sent else SOURCE_START_FAILED, str(fault)))
        return False

    def _was_told(self, reply: Reply, token: str | None) -> bool:
        trouble = ""
        if reply.status == 200:
            try:
                listed = read_tools(reply.body)
                self._publish(listed.definitions, listed.warnings)
            except BadAnswer as error:
                trouble = f"`GET {TOOLS}` was answered with something else: {error}"
        elif reply.status not in _NO_LIST:
            said = said_in(reply.body, token, self._redact)[:_SHOWN_CHARACTERS]
            trouble = f"`GET {TOOLS}` was answered with HTTP {reply.status}: {said}"
        elif not self._declared.definitions:
            trouble = f"`GET {TOOLS}` was answered with HTTP {reply.status}, and no tools are declared"
        if not trouble:
            self._publish_declared_at_least()
            self._health_tracker.well()
        elif self._published is not None:
            self._health_tracker.ailing(trouble)
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
        tools = tuple(Tool(self.name, name, definition) for name, definition in definitions.items())
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
