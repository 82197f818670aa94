"""How a conversation with a server begins: which era it speaks, which version, and what it says of itself."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Final

import msgspec

from trunkline.core.call import Call, Failure, Json, Outcome, RemoteError, Request, Result
from trunkline.core.errors import (
    SOURCE_AUTH_REQUIRED,
    SOURCE_LOST,
    SOURCE_PROTOCOL,
    SOURCE_START_FAILED,
    GatewayError,
    Problem,
)
from trunkline.protocol.jsonrpc import BadMessage, members_of
from trunkline.protocol.mcp.capabilities import TASKS, extensions
from trunkline.protocol.mcp.methods import (
    INITIALIZE,
    LOGGING_SET_LEVEL,
    NOTIFICATIONS_INITIALIZED,
    SERVER_DISCOVER,
    SUBSCRIPTIONS_LISTEN,
    TASKS_GET,
)
from trunkline.protocol.mcp.modern import SERVER_INFO, encode_request_meta
from trunkline.protocol.mcp.notifications import LEVELS, RANKS
from trunkline.protocol.mcp.versions import (
    LATEST_MODERN,
    LEGACY,
    Era,
    decode_initialize_result,
    initialize_params,
)
from trunkline.runtime.deadlines import TimeLimit, wait_first
from trunkline.sources.mcp.http_session import HttpUpstreamSession
from trunkline.sources.mcp.session import UpstreamSession
from trunkline.version import __version__

if TYPE_CHECKING:
    from trunkline.sources.mcp.session import UpstreamSession
from contextlib import suppress

from trunkline.protocol.mcp.methods import PING
from trunkline.sources.mcp.session import UpstreamSession

# What a request tells its server about whom it is for: capabilities and log level, in the way of either era.

CLIENT_NAME: Final = "trunkline"
_MOST_STAMPS: Final = 256
_LEVEL_OF_LEGACY_CLIENTS: Final = "info"
"""A legacy client that never named a level expects to hear something."""
_SET_LEVEL_S: Final = 10.0


_ABOUT_TASKS: Final = frozenset({SUBSCRIPTIONS_LISTEN, TASKS_GET})
_KNOWS_TASKS: Final = b'{"extensions":{"%b":{}}}' % TASKS.encode()


def own_request_meta(capabilities: bytes = b"{}") -> bytes:
    """For requests of our own: nobody can be asked anything."""
    return encode_request_meta(CLIENT_NAME, __version__, capabilities)


def level_in(params: Json) -> str:
    """The level that a `logging/setLevel` names; empty when it names none."""
    try:
        return msgspec.json.decode(params, type=_SetLevel).level
    except msgspec.MsgspecError:
        return ""


class _SetLevel(msgspec.Struct):
    level: str


class RequestMeta:
    """A modern server learns it from every request anew. The same callers come again and again, so it is kept."""

    def __init__(self, *, logs: bool, tasks: bool = False) -> None:
        self._logs = logs
        self._own = own_request_meta()
        self._own_about_tasks = own_request_meta(_KNOWS_TASKS) if tasks else self._own
        self._made: dict[tuple[bytes, str, str], bytes] = {}

    def __call__(self, request: Request) -> bytes:
        if not isinstance(request, Call):
            return self._own_about_tasks if request.method in _ABOUT_TASKS else self._own
        caller = request.caller
        key = (caller.capabilities, caller.log_level, caller.version)
        made = self._made.get(key)
        return self._make(*key) if made is None else made

    def _make(self, capabilities: bytes, level: str, version: str) -> bytes:
        if len(self._made) >= _MOST_STAMPS:
            self._made.clear()
        wanted = level or (_LEVEL_OF_LEGACY_CLIENTS if version in LEGACY else "")
        made = encode_request_meta(
            CLIENT_NAME, __version__, capabilities, wanted if self._logs and wanted in RANKS else ""
        )
        self._made[capabilities, level, version] = made
        return made


class SessionLogLevel:
    """A legacy server keeps one level per conversation: it is told whenever a call wants to hear more than before."""

    def __init__(self, session: UpstreamSession) -> None:
        self._session = session
        self._told = len(LEVELS)

    def __call__(self, request: Request) -> bytes:
        if isinstance(request, Call) and request.caller.log_level:
            self.want(request.caller.log_level)
        return b""

    def want(self, level: str) -> None:
        """Whoever wants less gets less from us: the server is never told to say less."""
        rank = RANKS.get(level, self._told)
        if rank >= self._told:
            return
        self._told = rank
        session = self._session
        request = Request(LOGGING_SET_LEVEL, b'{"level":"%b"}' % level.encode(), lambda _: timer.cancel())
        late = Failure(session.problem(SOURCE_LOST, f"no answer to `{LOGGING_SET_LEVEL}` in time"))
        timer = asyncio.get_running_loop().call_later(_SET_LEVEL_S, request.give_up, late)
        session.send(request)


_PROBE_S: Final = 3.0
_VERSION_NOT_SERVED: Final = -32022


async def initialize_session(
    session: UpstreamSession, known_era: Era | None, capabilities: bytes, timeout_s: float
) -> UpstreamSession:
    """Probe for the modern era, fall back to `initialize`; a server whose era is known is not probed again."""
    try:
        async with TimeLimit(timeout_s):
            if known_era == "modern":
                return _modern(session, await _discover(session, timeout_s))
            if known_era == "legacy":
                return await _initialize(session, capabilities, timeout_s)
            return await _probe(session, capabilities, timeout_s)
    except TimeoutError:
        problem = session.problem(SOURCE_START_FAILED, f"no handshake within {timeout_s:g} seconds")
        raise GatewayError(problem) from None


async def _probe(session: UpstreamSession, capabilities: bytes, timeout_s: float) -> UpstreamSession:
    """Some servers never answer what they do not know, and some take long to start: so after a while `initialize`
    goes out too, and the first of the two to be answered well decides."""
    probe = asyncio.ensure_future(_discover(session, timeout_s))
    try:
        await wait_first([probe], _PROBE_S)
        if probe.done():
            outcome = probe.result()
            if _is_modern(outcome):
                return _modern(session, outcome)
            _stop_if_hopeless(session, outcome)
            return await _initialize(session, capabilities, timeout_s)
        return await _first_of(session, probe, capabilities, timeout_s)
    finally:
        probe.cancel()
        await asyncio.wait([probe])


async def _first_of(
    session: UpstreamSession, probe: asyncio.Future[Outcome], capabilities: bytes, timeout_s: float
) -> UpstreamSession:
    """A server that was only slow answers both, and one that took the probe for the opening refuses `initialize`:
    so a good answer to the probe decides even when the other one is there already."""
    greeting = asyncio.ensure_future(_initialize(session, capabilities, timeout_s))
    try:
        await asyncio.wait([probe, greeting], return_when=asyncio.FIRST_COMPLETED)
        if greeting.done() and greeting.exception() is not None:
            await wait_first([probe], _PROBE_S)
        if probe.done() and _is_modern(probe.result()):
            return _modern(session, probe.result())
        return await greeting
    finally:
        greeting.cancel()
        await asyncio.wait([greeting])


async def _discover(session: UpstreamSession, timeout_s: float) -> Outcome:
    """Once more if it refuses the version and names the very same as one that it serves."""
    _speak(session, LATEST_MODERN, modern=True)
    outcome = await session.request(SERVER_DISCOVER, b"{}", timeout_s)
    if isinstance(outcome, RemoteError) and LATEST_MODERN in _offered(outcome):
        outcome = await session.request(SERVER_DISCOVER, b"{}", timeout_s)
    return outcome


def _is_modern(outcome: Outcome) -> bool:
    if not isinstance(outcome, Result):
        return False
    try:
        return LATEST_MODERN in decode_initialize_result(outcome.raw).supported_versions
    except msgspec.MsgspecError:
        return False


def _modern(session: UpstreamSession, outcome: Outcome) -> UpstreamSession:
    raw = session.result_of(outcome)
    if not _is_modern(outcome):
        raise GatewayError(session.problem(SOURCE_PROTOCOL, f"does not serve protocol version {LATEST_MODERN}"))
    _speak(session, LATEST_MODERN, modern=True)
    session.server_requests.declared = b"{}"  # servers of this era put their questions into results
    hello = decode_initialize_result(raw)
    session.has_tasks = TASKS in extensions(bytes(hello.capabilities))
    session.meta_for = RequestMeta(logs=hello.declares("logging"), tasks=session.has_tasks)
    hello.protocol_version = LATEST_MODERN
    hello.server_info = _server_info(raw)
    session.server = hello
    return session


def _server_info(raw: bytes) -> msgspec.Raw:
    """What the server calls itself, in its `_meta`. Nothing depends on it, so nothing fails for it."""
    try:
        meta = members_of(raw, "result").get("_meta", msgspec.Raw(b"{}"))
        return members_of(meta, "`_meta`").get(SERVER_INFO, msgspec.Raw(b"{}"))
    except BadMessage:
        return msgspec.Raw(b"{}")


def _stop_if_hopeless(session: UpstreamSession, outcome: Outcome) -> None:
    """A dead wire, a login, or a server that names only versions we do not speak: `initialize` would not help."""
    if isinstance(outcome, Failure) and (session.lost.done() or outcome.problem.code in _HOPELESS):
        raise GatewayError(outcome.problem)
    if isinstance(outcome, RemoteError) and not (_offered(outcome) & set(LEGACY)) and _offered(outcome):
        versions = ", ".join(sorted(_offered(outcome)))
        raise GatewayError(session.problem(SOURCE_PROTOCOL, f"serves only protocol versions {versions}"))


_HOPELESS: Final = (SOURCE_AUTH_REQUIRED, SOURCE_START_FAILED)


class _Offer(msgspec.Struct):
    supported: list[str]


class _VersionError(msgspec.Struct):
    code: int
    data: _Offer


def _offered(error: RemoteError) -> set[str]:
    try:
        refusal = msgspec.json.decode(error.raw, type=_VersionError)
    except msgspec.MsgspecError:
        return set()
    return set(refusal.data.supported) if refusal.code == _VERSION_NOT_SERVED else set()


async def _initialize(session: UpstreamSession, capabilities: bytes, timeout_s: float) -> UpstreamSession:
    _speak(session, "", modern=False)
    session.server_requests.declared = capabilities
    params = initialize_params(CLIENT_NAME, __version__, capabilities)
    outcome = await session.request(INITIALIZE, params, timeout_s)
    try:
        hello = decode_initialize_result(session.result_of(outcome))
    except msgspec.MsgspecError as error:
        raise GatewayError(session.problem(SOURCE_PROTOCOL, f"its `initialize` result is not valid: {error}")) from None
    except GatewayError as error:
        raise GatewayError(_named(session, error.problem)) from None
    if hello.protocol_version not in LEGACY:
        reason = f"answered with protocol version `{hello.protocol_version}`, which is not served"
        raise GatewayError(session.problem(SOURCE_PROTOCOL, reason))
    _speak(session, hello.protocol_version, modern=False)
    if hello.declares("logging"):
        session.meta_for = SessionLogLevel(session)
    session.notify(NOTIFICATIONS_INITIALIZED)
    session.server = hello
    return session


def _named(session: UpstreamSession, problem: Problem) -> Problem:
    return problem if problem.source else session.problem(problem.code, f"`initialize` was {problem.message}")


def _speak(session: UpstreamSession, version: str, *, modern: bool) -> None:
    session.modern = modern
    session.request_meta = own_request_meta() if modern else b""
    session.meta_for = None
    if isinstance(session, HttpUpstreamSession):
        session.set_version(version, modern=modern)


# The moment after a server was greeted: servers that work in the client's folders ask for them then.
#
# Without a gateway a client greets its servers when it starts, long before the first call. Here the first call is what
# starts a client's own server, so it waits until the server knows the folders; else it would be refused there, or work in
# the wrong place. A server that asks nothing costs one ping.

_PING_S: Final = 1.0
_LONGEST_S: Final = 5.0
_SINK_IN_S: Final = 0.1
"""What a server does with an answer (it may look at the folders first) is not to be seen from outside."""


async def wait_for_roots(session: UpstreamSession) -> None:
    """Until the server has read its greeting, and has the answers to what it asked then."""
    with suppress(TimeoutError):
        async with TimeLimit(_LONGEST_S):
            await session.request(PING, b"{}", _PING_S)
            if session.server_requests.any_received:
                await _quiet(session)
                await asyncio.sleep(_SINK_IN_S)


async def _quiet(session: UpstreamSession) -> None:
    quiet = asyncio.Event()
    session.server_requests.when_idle(quiet.set)
    await quiet.wait()
