"""The client of a running gateway: MCP for tools and calls, the operator's routes for the rest."""

from __future__ import annotations

import asyncio
import re
from collections.abc import AsyncGenerator, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import replace
from typing import Any, Final
from urllib.parse import quote, urlencode

import msgspec

from trunkline.cli.client.gateway_client import (
    Budget,
    Match,
    MatchReasons,
    ShowProgress,
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
_CHECK_EVERY_S: Final = 15.0
"""How often a gateway is checked to be alive while a call takes long."""
_LIMIT_BYTES: Final = 64 * 1024 * 1024
_NAME: Final = "gateway"
_NOT_EXPOSABLE: Final = re.compile(r"[^A-Za-z0-9_-]")


class RemoteClient:
    """The GatewayClient of a running gateway."""

    def __init__(self, target: RemoteTarget, session: UpstreamSession, pool: HttpPool) -> None:
        self._target = target
        self._session = session
        self._pool = pool

    async def tools(self) -> list[ToolDefinition]:
        try:
            return await fetch_tools(self._session)
        except TimeoutError:
            raise _unreachable(self._target, "its list of tools did not arrive in time") from None
        except GatewayError as error:
            raise GatewayError(_about_gateway(self._target, error.problem)) from None

    async def find(self, query: str, limit: int) -> list[Match]:
        known = {tool.name: tool for tool in await self.tools()}
        parameters = urlencode({"query": query, "limit": limit, "provision": 0, "explain": 1})
        body = await self._get(f"/api/tools/discover?{parameters}", self._target.token, TOKEN_VARIABLE)
        try:
            return read_matches(body, known)
        except (msgspec.MsgspecError, RecursionError):
            raise _unreachable(self._target, "its search results cannot be read") from None

    async def budget(self) -> Budget:
        body = await self._get("/api/tools/budget?tools=1", self._target.token, TOKEN_VARIABLE)
        return self._checked(body, _Budget, "budget")

    async def schema(self, name: str) -> Mapping[str, Any]:
        tools = {tool.name: tool for tool in await self.tools()}
        if name not in tools and self._target.operator_token:
            name = str((await self.diagnose(name)).get("exposed", ""))
        elif name not in tools:  # only the operator may ask the gateway for the name that clients see
            name = guess_exposed_name(name, list(tools))
        return input_schema(tools[name]) if name in tools else {}

    # -- calls ----------------------------------------------------------------------------------------------------

    async def call(self, name: str, arguments: bytes, progress: ShowProgress) -> Outcome:
        answered: asyncio.Future[Outcome] = asyncio.get_running_loop().create_future()

        def done(request: Request) -> None:
            if request.outcome is not None and not answered.done():
                answered.set_result(request.outcome)

        request = Request(TOOLS_CALL, b'{"name":%b,"arguments":%b}' % (encode(name), arguments), done)
        request.wants_progress = True
        request.on_notification = lambda _method, params: progress(progress_line(params))
        self._session.send(request)
        try:
            await self._watch(answered)
            outcome = answered.result()
        finally:
            if not answered.done():
                self._session.abandon(request)
        return Failure(_about_gateway(self._target, outcome.problem)) if isinstance(outcome, Failure) else outcome

    async def _watch(self, answered: asyncio.Future[Outcome]) -> None:
        """Wait for a call, however long it takes, unless the gateway itself no longer answers."""
        while not answered.done():
            await asyncio.wait([answered], timeout=_CHECK_EVERY_S)
            if answered.done():
                return
            try:
                await self._send("/healthz", [])
            except RequestFailed as error:
                problem = _unreachable(self._target, str(error)).problem
                raise GatewayError(replace(problem, phase="sent", executed="unknown")) from None

    async def delay_reason(self, name: str) -> str:
        """Known to the operator only."""
        if not self._target.operator_token:
            return ""
        try:
            findings = (await self.diagnose(name))["findings"]
        except GatewayError:
            return ""
        return next((finding["what"] for finding in findings if "is starting" in finding["what"]), "")

    # -- the operator's routes ------------------------------------------------------------------------------------

    async def servers(self) -> list[Status]:
        """From the operator's route if this user is the operator, else from a tool that any client may call."""
        if self._target.operator_token:
            body = await self._get("/api/mcp/servers", self._target.operator_token, OPERATOR_VARIABLE)
            return self._checked(body, _Statuses, "list of servers")["servers"]
        outcome = await self.call("trunkline.server_health", b"{}", lambda _: None)
        problem = _refusal(outcome)
        if problem is not None:
            raise GatewayError(replace(problem, executed="no"))
        try:
            assert isinstance(outcome, Result)
            body = bytes(msgspec.json.decode(outcome.raw, type=_StructuredResult).structured_content)
            return self._checked(body, _Statuses, "list of servers")["servers"]
        except (AssertionError, msgspec.MsgspecError, GatewayError):
            hint = f"set {OPERATOR_VARIABLE}, or turn on `gateway.meta_tools`"
            message = f"{self._target.url} does not show its servers to clients"
            raise GatewayError(Problem(code=UNAUTHORIZED, message=message, hint=hint)) from None

    async def diagnose(self, name: str) -> Mapping[str, Any]:
        if not self._target.operator_token:
            message = "Only the operator may ask a running gateway about a tool"
            raise GatewayError(Problem(code=UNAUTHORIZED, message=message, hint=f"set {OPERATOR_VARIABLE}"))
        body = await self._get(f"/api/tools/{quote(name, safe='')}/why", self._target.operator_token, OPERATOR_VARIABLE)
        return self._checked(body, _Diagnosis, "answer about the tool")

    def _checked(self, body: bytes, shape: type[msgspec.Struct], what: str) -> Any:
        """Decode a body that has at least the members of `shape`, which commands rely on."""
        try:
            msgspec.json.decode(body, type=shape)
            return msgspec.json.decode(body)
        except (msgspec.MsgspecError, RecursionError):
            raise _unreachable(self._target, f"its {what} cannot be read") from None

    async def _get(self, path: str, token: str, variable: str) -> bytes:
        """GET a route; `variable` is the environment variable that sets the token."""
        credentials = [(b"authorization", f"Bearer {token}".encode())] if token else []
        try:
            reply = await self._send(path, credentials)
        except RequestFailed as error:
            raise _unreachable(self._target, str(error)) from None
        if reply.status == 200:
            return reply.body
        if reply.status == 401:
            hint = f"set {variable} to the gateway's current token"
            kind = "operator's" if variable == OPERATOR_VARIABLE else "client's"
            message = f"{self._target.url} does not accept the {kind} token"
            raise GatewayError(Problem(code=UNAUTHORIZED, message=message, hint=hint))
        problem = read_http_problem(reply.body)
        if problem is not None and problem.code is not NOT_FOUND:
            raise GatewayError(problem)
        failed = _unreachable(self._target, f"HTTP {reply.status} from {path.partition('?')[0]}").problem
        older = "the gateway may be older than this command; restart it to run the same version"
        raise GatewayError(replace(failed, hint=older) if reply.status == 404 else failed)

    async def _send(self, path: str, headers: list[tuple[bytes, bytes]]) -> HttpResponse:
        """GET a path next to the gateway's `/mcp`, under whatever prefix a proxy gave it. Raises RequestFailed."""
        target = self._pool.target
        beside = target.path.partition(b"?")[0].removesuffix(b"/mcp") + path.encode()
        return await send_request(
            self._pool, request_head(b"GET", beside, [(b"host", target.authority), *headers]), _ANSWER_S
        )


def guess_exposed_name(name: str, exposed: Sequence[str]) -> str:
    """The exposed name that `source.tool`, `source:tool`, `source__tool` or an unambiguous bare name stands for; else
    empty."""
    joined = _NOT_EXPOSABLE.sub("_", without_own_prefix(name))
    for candidate in (joined, joined.replace("__", "_", 1)):
        if candidate in exposed:
            return candidate
    ending = [one for one in exposed if one.endswith(f"_{joined}")]
    return ending[0] if len(ending) == 1 else ""


# -- connecting -------------------------------------------------------------------------------------------------------


class GatewaySession(HttpUpstreamSession):
    """`refusal` is the gateway's own problem, with its code and hint, if it refused the connection."""

    refusal: Problem | None = None

    async def request(self, method: str, params: Json, timeout_s: float) -> Outcome:
        outcome = await super().request(method, params, timeout_s)
        if isinstance(outcome, RemoteError):
            problem = read_rpc_problem(outcome.raw)
            part_of_handshake = (UNSUPPORTED_VERSION, UNKNOWN_METHOD)
            if problem is not None and problem.code not in part_of_handshake:
                self.refusal = problem
        return outcome


@asynccontextmanager
async def remote_client(remote: RemoteTarget) -> AsyncGenerator[RemoteClient, None]:
    """Connect to a running gateway. Raises GatewayError if that fails."""
    target = HttpTarget(remote.url, socket=remote.socket)
    for token in (remote.token, remote.operator_token):
        check_target(target, token)
    pool = HttpPool(target, connect_timeout_s=_CONNECT_S, limit_bytes=_LIMIT_BYTES)
    headers = {"Authorization": f"Bearer {remote.token}"} if remote.token else {}
    session = GatewaySession(_NAME, lambda _: None, pool, headers)
    try:
        try:
            initialized = await initialize_session(session, None, b"{}", _ANSWER_S)
        except GatewayError as error:
            raise GatewayError(session.refusal or _about_gateway(remote, error.problem)) from None
        yield RemoteClient(remote, initialized, pool)
    finally:
        await session.close()


# -- problems ---------------------------------------------------------------------------------------------------------


def _about_gateway(target: RemoteTarget, problem: Problem) -> Problem:
    """A problem of the transport, reworded as one of the gateway at its other end."""
    if problem.code is SOURCE_AUTH_REQUIRED:
        message = f"{target.url} {'does not accept the token' if target.token else 'requires a token'}"
        hint = f"set {TOKEN_VARIABLE}, or name the gateway's configuration file with `-c`"
        return Problem(code=UNAUTHORIZED, message=message, hint=hint)
    failed = _unreachable(target, problem.message.removeprefix(f"Server {_NAME}: ")).problem
    if problem.code is ANSWER_TOO_LARGE:
        failed = replace(failed, code=ANSWER_TOO_LARGE, hint="")
    elif problem.code is SOURCE_PROTOCOL:
        failed = replace(failed, hint="is this the URL of a gateway? `trunkline up` prints its own")
    return replace(failed, phase=problem.phase, executed=problem.executed)


def _refusal(outcome: Outcome) -> Problem | None:
    """Why the gateway refused to call one of its own tools; None if it may just not have that tool."""
    if isinstance(outcome, Failure):
        return outcome.problem
    problem = read_rpc_problem(outcome.raw) if isinstance(outcome, RemoteError) else None
    return None if problem is None or problem.code is UNKNOWN_TOOL else problem


def _unreachable(target: RemoteTarget, reason: str) -> GatewayError:
    hint = "is it running? `trunkline up` starts one"
    return GatewayError(Problem(code=GATEWAY_UNREACHABLE, message=f"{target.url}: {reason}", hint=hint))


class _ErrorBody(msgspec.Struct):
    code: str
    detail: str = ""
    hint: str = ""


class _RpcError(msgspec.Struct):
    data: _ErrorBody
    message: str = ""


def read_rpc_problem(raw: Json) -> Problem | None:
    """The problem in a gateway's JSON-RPC error; None if the error is not a gateway's."""
    try:
        error = msgspec.json.decode(raw, type=_RpcError)
    except (msgspec.MsgspecError, RecursionError):
        return None
    return _problem(error.data, error.message)


def read_http_problem(body: bytes) -> Problem | None:
    """The problem in the body of an HTTP error; None if the error is not a gateway's."""
    try:
        error = msgspec.json.decode(body, type=_ErrorBody)
    except (msgspec.MsgspecError, RecursionError):
        return None
    return _problem(error, error.detail)


def _problem(error: _ErrorBody, message: str) -> Problem | None:
    code = CODES.get(error.code)
    return None if code is None else Problem(code=code, message=message, hint=error.hint)


# -- what commands rely on in the gateway's answers; other members are passed on as they are ---------------------------


class _Status(msgspec.Struct):
    name: str
    state: str
    tools: int = 0
    restarts: int = 0


class _Statuses(msgspec.Struct):
    servers: list[_Status]


class _Finding(msgspec.Struct):
    what: str
    hint: str = ""


class _Diagnosis(msgspec.Struct):
    found: bool
    findings: list[_Finding]
    address: str = ""
    server: str = ""
    similar: list[str] = []


class _TokenCost(msgspec.Struct):
    tokens: int
    server: str = ""
    tool_id: str = ""
    name: str = ""
    tools: int = 0
    dialogue: int = 0


class _AutoMode(msgspec.Struct):
    chosen: str
    why: str


class _Modes(msgspec.Struct):
    all: _TokenCost
    search: _TokenCost
    auto: _AutoMode


class _Budget(msgspec.Struct):
    servers: list[_TokenCost]
    tools: list[_TokenCost]
    modes: _Modes
    disclosure: str
    shown: str


class _StructuredResult(msgspec.Struct, rename="camel"):
    structured_content: msgspec.Raw


class _DiscoveredTool(msgspec.Struct, rename="camel"):
    tool_id: str = msgspec.field(name="tool_id")
    description: str = ""
    input_schema: msgspec.Raw = msgspec.Raw(b"{}")
    why: MatchReasons = msgspec.field(default_factory=MatchReasons)


class _DiscoveredTools(msgspec.Struct):
    tools: list[_DiscoveredTool]


def read_matches(body: bytes, known: Mapping[str, ToolDefinition]) -> list[Match]:
    """The answer of `/api/tools/discover`, with the full definitions of `known` tools.

    Raises msgspec.MsgspecError or RecursionError if it is malformed."""
    found = msgspec.json.decode(body, type=_DiscoveredTools).tools
    return [Match(known.get(each.tool_id) or _definition_of(each), each.why) for each in found]


def _definition_of(found: _DiscoveredTool) -> ToolDefinition:
    """For a tool that is not listed, such as one whose name another tool has."""
    members = {"name": encode(found.tool_id), "description": encode(found.description)}
    return ToolDefinition("", found.tool_id, encode_members({**members, "inputSchema": found.input_schema}))
