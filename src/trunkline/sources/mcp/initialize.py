"""Initialization of a session: the server's era and version, the `_meta` of each request, the log level, and roots."""

from __future__ import annotations

import asyncio
from contextlib import suppress
from typing import Final

import msgspec
from msgspec import Raw

from trunkline.core.call import Call, Failure, Outcome, RemoteError, Request, Result
from trunkline.core.errors import SOURCE_AUTH_REQUIRED, SOURCE_PROTOCOL, SOURCE_START_FAILED, GatewayError
from trunkline.protocol.jsonrpc import BadMessage, members_of
from trunkline.protocol.mcp.capabilities import TASKS, extensions
from trunkline.protocol.mcp.methods import (
    INITIALIZE,
    LOGGING_SET_LEVEL,
    NOTIFICATIONS_INITIALIZED,
    PING,
    SERVER_DISCOVER,
    SUBSCRIPTIONS_LISTEN,
    TASKS_GET,
)
from trunkline.protocol.mcp.modern import SERVER_INFO, encode_request_meta
from trunkline.protocol.mcp.notifications import LEVELS, RANKS
from trunkline.protocol.mcp.versions import LATEST_MODERN, LEGACY, Era, decode_initialize_result, initialize_params
from trunkline.runtime.deadlines import TimeLimit, wait_first
from trunkline.sources.mcp.http_session import HttpUpstreamSession
from trunkline.sources.mcp.session import UpstreamSession
from trunkline.version import __version__

CLIENT_NAME: Final = "trunkline"
_PROBE_S: Final = 3.0
_VERSION_NOT_SERVED: Final = -32022
_FATAL: Final = (SOURCE_AUTH_REQUIRED, SOURCE_START_FAILED)
_MAX_CACHED_META: Final = 256
_DEFAULT_LEGACY_LEVEL: Final = "info"
"""Legacy clients that never set a level expect to receive something."""
_SET_LEVEL_S: Final = 10.0
_TASK_METHODS: Final = frozenset({SUBSCRIPTIONS_LISTEN, TASKS_GET})
_TASK_CAPABILITIES: Final = b'{"extensions":{"%b":{}}}' % TASKS.encode()
_PING_S: Final = 1.0
_MAX_WAIT_S: Final = 5.0
_PROCESSING_S: Final = 0.1
"""Time for the server to process our answers (it may look at the folders first), which we cannot observe."""


async def initialize_session(
    session: UpstreamSession, known_era: Era | None, capabilities: bytes, timeout_s: float
) -> UpstreamSession:
    """Probe for the modern era, fall back to `initialize`; a server whose era is known is not probed again."""
    try:
        async with TimeLimit(timeout_s):
            if known_era == "modern":
                return _finish_modern(session, await _discover(session, timeout_s))
            if known_era == "legacy":
                return await _initialize(session, capabilities, timeout_s)
            return await _probe(session, capabilities, timeout_s)
    except TimeoutError:
        problem = session.problem(SOURCE_START_FAILED, f"no handshake within {timeout_s:g} seconds")
        raise GatewayError(problem) from None


async def _probe(session: UpstreamSession, capabilities: bytes, timeout_s: float) -> UpstreamSession:
    """Probe, and after a while send `initialize` too: some servers never answer unknown methods, some start slowly."""
    probe = asyncio.ensure_future(_discover(session, timeout_s))
    try:
        await wait_first([probe], _PROBE_S)
        if not probe.done():
            return await _race(session, probe, capabilities, timeout_s)
        outcome = probe.result()
        if _is_modern(outcome):
            return _finish_modern(session, outcome)
        _raise_if_fatal(session, outcome)
        return await _initialize(session, capabilities, timeout_s)
    finally:
        probe.cancel()
        await asyncio.wait([probe])


async def _race(
    session: UpstreamSession, probe: asyncio.Future[Outcome], capabilities: bytes, timeout_s: float
) -> UpstreamSession:
    """Take the first good answer, but the probe's if both are there: a slow server answers both, and one that took the
    probe for its first request refuses `initialize`."""
    initializing = asyncio.ensure_future(_initialize(session, capabilities, timeout_s))
    try:
        await asyncio.wait([probe, initializing], return_when=asyncio.FIRST_COMPLETED)
        if initializing.done() and initializing.exception() is not None:
            await wait_first([probe], _PROBE_S)
        if probe.done() and _is_modern(probe.result()):
            return _finish_modern(session, probe.result())
        return await initializing
    finally:
        initializing.cancel()
        await asyncio.wait([initializing])


async def _discover(session: UpstreamSession, timeout_s: float) -> Outcome:
    """Ask once more if the server refuses the version while listing that same version as supported."""
    _set_version(session, LATEST_MODERN, modern=True)
    outcome = await session.request(SERVER_DISCOVER, b"{}", timeout_s)
    if isinstance(outcome, RemoteError) and LATEST_MODERN in _supported_versions(outcome):
        outcome = await session.request(SERVER_DISCOVER, b"{}", timeout_s)
    return outcome


def _is_modern(outcome: Outcome) -> bool:
    if not isinstance(outcome, Result):
        return False
    try:
        return LATEST_MODERN in decode_initialize_result(outcome.raw).supported_versions
    except msgspec.MsgspecError:
        return False


def _finish_modern(session: UpstreamSession, outcome: Outcome) -> UpstreamSession:
    raw = session.result_of(outcome)
    if not _is_modern(outcome):
        raise GatewayError(session.problem(SOURCE_PROTOCOL, f"does not serve protocol version {LATEST_MODERN}"))
    _set_version(session, LATEST_MODERN, modern=True)
    session.server_requests.declared = b"{}"  # servers of this era put their requests into results
    server = session.server = decode_initialize_result(raw)
    session.has_tasks = TASKS in extensions(bytes(server.capabilities))
    session.meta_for = RequestMeta(logs=server.declares("logging"), tasks=session.has_tasks)
    server.protocol_version = LATEST_MODERN
    server.server_info = Raw(b"{}")
    with suppress(BadMessage):  # nothing depends on its name, so nothing fails over it
        meta = members_of(members_of(raw, "result").get("_meta", Raw(b"{}")), "`_meta`")
        server.server_info = meta.get(SERVER_INFO, Raw(b"{}"))
    return session


def _raise_if_fatal(session: UpstreamSession, outcome: Outcome) -> None:
    """Raise if `initialize` would not help: a lost session, a login, or a server of other versions."""
    if isinstance(outcome, Failure) and (session.lost.done() or outcome.problem.code in _FATAL):
        raise GatewayError(outcome.problem)
    versions = _supported_versions(outcome) if isinstance(outcome, RemoteError) else set[str]()
    if versions and versions.isdisjoint(LEGACY):
        reason = f"serves only protocol versions {', '.join(sorted(versions))}"
        raise GatewayError(session.problem(SOURCE_PROTOCOL, reason))


class _Supported(msgspec.Struct):
    supported: list[str]


class _VersionError(msgspec.Struct):
    code: int
    data: _Supported


def _supported_versions(error: RemoteError) -> set[str]:
    try:
        refusal = msgspec.json.decode(error.raw, type=_VersionError)
    except msgspec.MsgspecError:
        return set()
    return set(refusal.data.supported) if refusal.code == _VERSION_NOT_SERVED else set()


async def _initialize(session: UpstreamSession, capabilities: bytes, timeout_s: float) -> UpstreamSession:
    _set_version(session, "", modern=False)
    session.server_requests.declared = capabilities
    params = initialize_params(CLIENT_NAME, __version__, capabilities)
    outcome = await session.request(INITIALIZE, params, timeout_s)
    try:
        server = session.server = decode_initialize_result(session.result_of(outcome))
    except msgspec.MsgspecError as error:
        raise GatewayError(session.problem(SOURCE_PROTOCOL, f"its `initialize` result is not valid: {error}")) from None
    except GatewayError as error:
        problem = error.problem
        if not problem.source:
            problem = session.problem(problem.code, f"`initialize` was {problem.message}")
        raise GatewayError(problem) from None
    if server.protocol_version not in LEGACY:
        reason = f"answered with protocol version `{server.protocol_version}`, which is not supported"
        raise GatewayError(session.problem(SOURCE_PROTOCOL, reason))
    _set_version(session, server.protocol_version, modern=False)
    if server.declares("logging"):
        session.meta_for = SessionLogLevel(session)
    session.notify(NOTIFICATIONS_INITIALIZED)
    return session


def _set_version(session: UpstreamSession, version: str, *, modern: bool) -> None:
    session.modern = modern
    session.request_meta = own_request_meta() if modern else b""
    session.meta_for = None
    if isinstance(session, HttpUpstreamSession):
        session.set_version(version, modern=modern)


# -- what requests say of their caller --------------------------------------------------------------------------------


def own_request_meta(capabilities: bytes = b"{}") -> bytes:
    """The `_meta` of requests of our own, which by default declare nothing that a server could ask for."""
    return encode_request_meta(CLIENT_NAME, __version__, capabilities)


class RequestMeta:
    """The `_meta` of each request to a modern server, cached by caller."""

    def __init__(self, *, logs: bool, tasks: bool = False) -> None:
        self._logs = logs
        self._own = own_request_meta()
        self._own_for_tasks = own_request_meta(_TASK_CAPABILITIES) if tasks else self._own
        self._cache: dict[tuple[bytes, str, str], bytes] = {}

    def __call__(self, request: Request) -> bytes:
        if not isinstance(request, Call):
            return self._own_for_tasks if request.method in _TASK_METHODS else self._own
        caller = request.caller
        key = (caller.capabilities, caller.log_level, caller.version)
        cached = self._cache.get(key)
        return self._encode(*key) if cached is None else cached

    def _encode(self, capabilities: bytes, level: str, version: str) -> bytes:
        if len(self._cache) >= _MAX_CACHED_META:
            self._cache.clear()
        wanted = level or (_DEFAULT_LEGACY_LEVEL if version in LEGACY else "")
        level_sent = wanted if self._logs and wanted in RANKS else ""
        meta = encode_request_meta(CLIENT_NAME, __version__, capabilities, level_sent)
        self._cache[capabilities, level, version] = meta
        return meta


class SessionLogLevel:
    """The log level of a legacy session: lowered whenever a call wants more than before, and never raised again."""

    def __init__(self, session: UpstreamSession) -> None:
        self._session = session
        self._rank = len(LEVELS)

    def __call__(self, request: Request) -> bytes:
        if isinstance(request, Call) and request.caller.log_level:
            self.want(request.caller.log_level)
        return b""

    def want(self, level: str) -> None:
        """Ask the server for this level. Callers that want less are filtered by the gateway."""
        rank = RANKS.get(level, self._rank)
        if rank >= self._rank:
            return
        self._rank = rank
        params = b'{"level":"%b"}' % level.encode()
        self._session.start_request(LOGGING_SET_LEVEL, params, _SET_LEVEL_S, lambda _: None)


async def wait_for_roots(session: UpstreamSession) -> None:
    """Wait until the server has read `initialized` and has answers to what it requested then, such as roots.

    A client without a gateway initializes its servers long before the first call. Here the first call starts the
    client's own server, and would be refused or run in the wrong place before the server knows the roots. A server
    that requests nothing costs one ping.
    """
    with suppress(TimeoutError):
        async with TimeLimit(_MAX_WAIT_S):
            await session.request(PING, b"{}", _PING_S)
            if session.server_requests.any_received:
                idle = asyncio.Event()
                session.server_requests.when_idle(idle.set)
                await idle.wait()
                await asyncio.sleep(_PROCESSING_S)
