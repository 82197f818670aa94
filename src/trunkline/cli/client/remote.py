"""Asking a gateway that runs: MCP for tools and calls, the operator's routes for the rest."""

from __future__ import annotations

import asyncio
import re
from collections.abc import AsyncGenerator, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import replace
from typing import Any, Final
from urllib.parse import quote, urlencode

import msgspec
from msgspec import Raw

from trunkline.cli.client.interface import (
    Budget,
    Match,
    MatchReasons,
    Progress,
    Status,
    input_schema,
    progress_line,
)
from trunkline.cli.client.target import OPERATOR_VARIABLE, RemoteTarget
from trunkline.cli.options import TOKEN_VARIABLE
from trunkline.core.call import Failure, Json, Outcome, RemoteError, Request, Result
from trunkline.core.errors import (
    ANSWER_TOO_LARGE,
    CODES,
    GATEWAY_UNREACHABLE,
    NOT_FOUND,
    SOURCE_AUTH_REQUIRED,
    SOURCE_PROTOCOL,
    UNAUTHORIZED,
    UNKNOWN_METHOD,
    UNKNOWN_TOOL,
    UNSUPPORTED_VERSION,
    GatewayError,
    Problem,
)
from trunkline.core.names import without_own_prefix
from trunkline.core.tool import ToolDefinition
from trunkline.frontends.relay.gateway import check_target
from trunkline.protocol.http1 import request_head
from trunkline.protocol.jsonrpc import encode, encode_members
from trunkline.protocol.mcp.methods import TOOLS_CALL
from trunkline.runtime.http_client import HttpPool, HttpResponse, HttpTarget, RequestFailed, send_request
from trunkline.sources.mcp.http_session import HttpUpstreamSession
from trunkline.sources.mcp.initialize import initialize_session
from trunkline.sources.mcp.list_fetch import fetch_tools
from trunkline.sources.mcp.session import UpstreamSession

_CONNECT_S: Final = 5.0
_ANSWER_S: Final = 15.0
_LOOK_EVERY_S: Final = 15.0
"""How often a gateway that is silent about a call is asked whether it is still there."""
_LIMIT_BYTES: Final = 64 * 1024 * 1024
_NAME: Final = "gateway"
_MCP: Final = b"/mcp"
_PART_OF_A_HANDSHAKE: Final = (UNSUPPORTED_VERSION, UNKNOWN_METHOD)
_OLDER: Final = "is it older than this command? Start it again to have both alike"


class RemoteClient:
    def __init__(self, there: RemoteTarget, session: UpstreamSession, pool: HttpPool) -> None:
        self._there = there
        self._session = session
        self._pool = pool

    async def tools(self) -> list[ToolDefinition]:
        try:
            return await fetch_tools(self._session, _NAME)
        except TimeoutError:
            raise _unreachable(self._there, "its list of tools did not come in time") from None
        except GatewayError as error:
            raise GatewayError(_about_gateway(self._there, error.problem)) from None

    async def find(self, query: str, limit: int) -> list[Match]:
        known = {tool.name: tool for tool in await self.tools()}
        asked = urlencode({"query": query, "limit": limit, "provision": 0, "explain": 1})
        body = await self._page(f"/api/tools/discover?{asked}", self._there.token, TOKEN_VARIABLE)
        try:
            return matches_in(body, known)
        except (msgspec.MsgspecError, RecursionError):
            raise _unreachable(self._there, "what it found cannot be read") from None

    async def budget(self) -> Budget:
        body = await self._page("/api/tools/budget?tools=1", self._there.token, TOKEN_VARIABLE)
        try:
            msgspec.json.decode(body, type=_Budget)
            return msgspec.json.decode(body)
        except (msgspec.MsgspecError, RecursionError):
            raise _unreachable(self._there, "what it says of its budget cannot be read") from None

    async def schema(self, name: str) -> Mapping[str, Any]:
        tools = {tool.name: tool for tool in await self.tools()}
        exposed = name if name in tools else await self._exposed(name, list(tools))
        return input_schema(tools[exposed]) if exposed in tools else {}

    async def _exposed(self, name: str, exposed: list[str]) -> str:
        """What clients see a tool as that was named otherwise; only the operator may ask the gateway itself."""
        if not self._there.operator_token:
            return spelled_alike(name, exposed)
        return str((await self.why(name)).get("exposed", ""))

    # -- calls ----------------------------------------------------------------------------------------------------

    async def call(self, name: str, arguments: bytes, progress: Progress) -> Outcome:
        params = b'{"name":%b,"arguments":%b}' % (encode(name), arguments)
        outcome = await self._ask(params, progress)
        if isinstance(outcome, Failure):
            return Failure(_about_gateway(self._there, outcome.problem))
        return outcome

    async def _ask(self, params: bytes, progress: Progress) -> Outcome:
        answered: asyncio.Future[Outcome] = asyncio.get_running_loop().create_future()

        def done(request: Request) -> None:
            if request.outcome is not None and not answered.done():
                answered.set_result(request.outcome)

        request = Request(TOOLS_CALL, params, done)
        request.wants_progress = True
        request.on_notification = lambda _method, params: progress(progress_line(params))
        self._session.send(request)
        try:
            await self._watch(answered)
            return answered.result()
        finally:
            if not answered.done():
                self._session.abandon(request)

    async def _watch(self, answered: asyncio.Future[Outcome]) -> None:
        """A tool may take its time, the gateway may not vanish: one that does not answer us is no longer waited for."""
        while not answered.done():
            await asyncio.wait([answered], timeout=_LOOK_EVERY_S)
            if answered.done():
                return
            try:
                await self._get("/healthz", [])
            except RequestFailed as error:
                problem = _unreachable(self._there, str(error)).problem
                raise GatewayError(replace(problem, phase="sent", executed="unknown")) from None

    # -- the operator's routes ------------------------------------------------------------------------------------

    async def servers(self) -> list[Status]:
        """As the operator sees them where this user is one, else as any client does."""
        if self._there.operator_token:
            return self._statuses(await self._operator("/api/mcp/servers"))
        outcome = await self.call("trunkline.server_health", b"{}", lambda _: None)
        refusal = _refusal(outcome)
        if refusal is not None:
            raise GatewayError(replace(refusal, executed="no"))
        try:
            assert isinstance(outcome, Result)
            return self._statuses(bytes(msgspec.json.decode(outcome.raw, type=_OwnAnswer).structured_content))
        except (AssertionError, msgspec.MsgspecError, GatewayError):
            hint = f"set {OPERATOR_VARIABLE}, or switch `gateway.meta_tools` on"
            message = f"{self._there.url} does not tell a client about its servers"
            raise GatewayError(Problem(code=UNAUTHORIZED, message=message, hint=hint)) from None

    def _statuses(self, body: bytes) -> list[Status]:
        try:
            msgspec.json.decode(body, type=_Statuses)
            return msgspec.json.decode(body)["servers"]
        except (msgspec.MsgspecError, RecursionError):
            raise _unreachable(self._there, "what it says of its servers cannot be read") from None

    async def why(self, name: str) -> Mapping[str, Any]:
        if not self._there.operator_token:
            message = "Only an operator may ask a running gateway about a tool"
            raise GatewayError(Problem(code=UNAUTHORIZED, message=message, hint=f"set {OPERATOR_VARIABLE}"))
        body = await self._operator(f"/api/tools/{quote(name, safe='')}/why")
        try:
            msgspec.json.decode(body, type=_Why)
            return msgspec.json.decode(body)
        except (msgspec.MsgspecError, RecursionError):
            raise _unreachable(self._there, "what it says of the tool cannot be read") from None

    async def held_up_by(self, name: str) -> str:
        """Only the operator can know; for anybody else, and where nothing can be learned, it is just waited for."""
        if not self._there.operator_token:
            return ""
        try:
            told = await self.why(name)
        except GatewayError:
            return ""
        return next((finding["what"] for finding in told["findings"] if "is starting" in finding["what"]), "")

    async def _operator(self, path: str) -> bytes:
        return await self._page(path, self._there.operator_token, OPERATOR_VARIABLE)

    async def _page(self, path: str, token: str, variable: str) -> bytes:
        """`variable` is the one of the environment that gives the token."""
        credentials = [(b"authorization", f"Bearer {token}".encode())] if token else []
        try:
            reply = await self._get(path, credentials)
        except RequestFailed as error:
            raise _unreachable(self._there, str(error)) from None
        if reply.status == 200:
            return reply.body
        if reply.status == 401:
            hint = f"set {variable} to the token that the gateway has now"
            whose = "operator's" if variable == OPERATOR_VARIABLE else "client's"
            message = f"{self._there.url} does not accept the {whose} token"
            raise GatewayError(Problem(code=UNAUTHORIZED, message=message, hint=hint))
        problem = problem_in_page(reply.body)
        if problem is not None and problem.code is not NOT_FOUND:
            raise GatewayError(problem)
        told = _unreachable(self._there, f"HTTP {reply.status} from {path.partition('?')[0]}").problem
        raise GatewayError(replace(told, hint=_OLDER) if reply.status == 404 else told)

    async def _get(self, path: str, headers: list[tuple[bytes, bytes]]) -> HttpResponse:
        """A page beside the gateway's `/mcp`, wherever an ingress put that. Raises RequestFailed."""
        target = self._pool.target
        beside = target.path.partition(b"?")[0].removesuffix(_MCP) + path.encode()
        return await send_request(
            self._pool, request_head(b"GET", beside, [(b"host", target.authority), *headers]), _ANSWER_S
        )


class _Status(msgspec.Struct):
    """What commands count on; the rest is shown where it is there."""

    name: str
    state: str
    tools: int = 0
    restarts: int = 0


class _Statuses(msgspec.Struct):
    servers: list[_Status]


class _Finding(msgspec.Struct):
    what: str
    hint: str = ""


class _Why(msgspec.Struct):
    found: bool
    findings: list[_Finding]
    address: str = ""
    server: str = ""
    similar: list[str] = []


class _Share(msgspec.Struct):
    tokens: int
    server: str = ""
    tool_id: str = ""
    name: str = ""
    tools: int = 0
    dialogue: int = 0


class _Auto(msgspec.Struct):
    chosen: str
    why: str


class _Modes(msgspec.Struct):
    all: _Share
    search: _Share
    auto: _Auto


class _Budget(msgspec.Struct):
    servers: list[_Share]
    tools: list[_Share]
    modes: _Modes
    disclosure: str
    shown: str


class _OwnAnswer(msgspec.Struct, rename="camel"):
    structured_content: msgspec.Raw


class GatewaySession(HttpUpstreamSession):
    """`refusal` is the gateway's own problem, with its code and hint, where it did not let us in at all."""

    refusal: Problem | None = None

    async def send_request(self, method: str, params: Json, timeout_s: float) -> Outcome:
        outcome = await super().ask(method, params, timeout_s)
        if isinstance(outcome, RemoteError):
            problem = problem_in_error(outcome.raw)
            if problem is not None and problem.code not in _PART_OF_A_HANDSHAKE:
                self.refusal = problem
        return outcome


@asynccontextmanager
async def remote_client(there: RemoteTarget) -> AsyncGenerator[RemoteClient, None]:
    target = HttpTarget(there.url, socket=there.socket)
    for token in (there.token, there.operator_token):
        check_target(target, token)
    pool = HttpPool(target, connect_timeout_s=_CONNECT_S, limit_bytes=_LIMIT_BYTES)
    headers = {"Authorization": f"Bearer {there.token}"} if there.token else {}
    lane = GatewaySession(_NAME, lambda _: None, pool, headers, _LIMIT_BYTES)
    try:
        yield RemoteClient(there, await _greet(lane, there), pool)
    finally:
        await lane.close()


async def _greet(lane: GatewaySession, there: RemoteTarget) -> UpstreamSession:
    try:
        return await initialize_session(lane, None, b"{}", _ANSWER_S)
    except GatewayError as error:
        raise GatewayError(lane.refusal or _about_gateway(there, error.problem)) from None


def _about_gateway(there: RemoteTarget, problem: Problem) -> Problem:
    """A problem of the wire, told as one of the gateway at its other end."""
    if problem.code is SOURCE_AUTH_REQUIRED:
        message = f"{there.url} {'does not accept the token' if there.token else 'asks for a token'}"
        return Problem(code=UNAUTHORIZED, message=message, hint=f"set {TOKEN_VARIABLE}, or name its file with `-c`")
    told = _unreachable(there, problem.message.removeprefix(f"Server {_NAME}: ")).problem
    if problem.code is ANSWER_TOO_LARGE:
        told = replace(told, code=ANSWER_TOO_LARGE, hint="")
    elif problem.code is SOURCE_PROTOCOL:
        told = replace(told, hint="is this the address of a gateway? `trunkline up` prints its own")
    return replace(told, phase=problem.phase, executed=problem.executed)


def _refusal(outcome: Outcome) -> Problem | None:
    """Why the gateway did not answer one of its own tools; None where it may just not have that tool."""
    if isinstance(outcome, Failure):
        return outcome.problem
    problem = problem_in_error(outcome.raw) if isinstance(outcome, RemoteError) else None
    return None if problem is None or problem.code is UNKNOWN_TOOL else problem


def _unreachable(there: RemoteTarget, reason: str) -> GatewayError:
    hint = "is it running? `trunkline up` starts one"
    return GatewayError(Problem(code=GATEWAY_UNREACHABLE, message=f"{there.url}: {reason}", hint=hint))


# Which of the names that clients see is meant by another spelling, where nobody can be asked.

_NOT_EXPOSABLE: Final = re.compile(r"[^A-Za-z0-9_-]")


def spelled_alike(name: str, exposed: Sequence[str]) -> str:
    """The exposed name behind `source.tool`, `source:tool`, `source__tool` or a bare name that only one has; else
    nothing."""
    joined = _NOT_EXPOSABLE.sub("_", without_own_prefix(name))
    for candidate in (joined, joined.replace("__", "_", 1)):
        if candidate in exposed:
            return candidate
    ending = [one for one in exposed if one.endswith(f"_{joined}")]
    return ending[0] if len(ending) == 1 else ""


class _Found(msgspec.Struct, rename="camel"):
    tool_id: str = msgspec.field(name="tool_id")
    description: str = ""
    input_schema: Raw = Raw(b"{}")
    why: MatchReasons = msgspec.field(default_factory=MatchReasons)


class _Answer(msgspec.Struct):
    tools: list[_Found]


def matches_in(body: bytes, known: Mapping[str, ToolDefinition]) -> list[Match]:
    """What `/api/tools/discover` answered. `known` are the tools of the list: definitions there are whole.

    Raises msgspec.MsgspecError or RecursionError where it answered something else."""
    answer = msgspec.json.decode(body, type=_Answer)
    return [Match(known.get(each.tool_id) or _as_told(each), each.why) for each in answer.tools]


def _as_told(found: _Found) -> ToolDefinition:
    """A tool that is in no list, such as one whose name another has."""
    members = {"name": encode(found.tool_id), "description": encode(found.description)}
    return ToolDefinition("", found.tool_id, encode_members({**members, "inputSchema": found.input_schema}))


class _Data(msgspec.Struct):
    code: str
    hint: str = ""


class _JsonRpcError(msgspec.Struct):
    data: _Data
    message: str = ""


class _RestError(msgspec.Struct):
    code: str
    detail: str = ""
    hint: str = ""


def problem_in_error(raw: Json) -> Problem | None:
    """The problem behind a JSON-RPC error of a gateway; None for an error of anybody else."""
    try:
        error = msgspec.json.decode(raw, type=_JsonRpcError)
    except (msgspec.MsgspecError, RecursionError):
        return None
    return _problem(error.data.code, error.message, error.data.hint)


def problem_in_page(body: bytes) -> Problem | None:
    """The same for the answer of an HTTP route."""
    try:
        error = msgspec.json.decode(body, type=_RestError)
    except (msgspec.MsgspecError, RecursionError):
        return None
    return _problem(error.code, error.detail, error.hint)


def _problem(code: str, message: str, hint: str) -> Problem | None:
    known = CODES.get(code)
    return None if known is None else Problem(code=known, message=message, hint=hint)
